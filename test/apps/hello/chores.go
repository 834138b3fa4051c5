package main

import (
	"log"
	"strconv"
)

// newestVersion is the last that migrate goes to.
const newestVersion = 42

// chore returns what the jobs of the documentation's examples run: test, deploy and migrate [--to
// VERSION], which fails where there is no such version.
func chore(args []string) (exitCode int, known bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch {
	case len(args) == 1 && (args[0] == "test" || args[0] == "deploy" || args[0] == "migrate"):
	case len(args) == 3 && args[0] == "migrate" && args[1] == "--to":
		if to, err := strconv.Atoi(args[2]); err != nil || to > newestVersion {
			log.Printf("migrate: there is no version %q, the newest is %d", args[2], newestVersion)
			return 1, true
		}
	default:
		return 0, false
	}
	log.Printf("%s: done", args[0])
	return 0, true
}
