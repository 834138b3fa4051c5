package main

import (
	"os"
	"runtime/debug"
)

// gcPercent has the heap grow by half between collections instead of doubling. Most of it
// are thousands of agents that live long, so the other half would lie idle; a collection of
// ten thousand takes some tenths of a second of CPU, several times a minute.
const gcPercent = 50

// collectSooner sets that, unless the environment says otherwise (GOGC).
func collectSooner() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
