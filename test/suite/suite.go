// Package suite decides which tests run: those that a change must pass, or also those that a
// release must pass.
package suite

import (
	"os"
	"testing"
)

// Environment has the tests of a release run, too.
const Environment = "PIPEOPS_TEST_SUITE=all"

// RaceFlags compile tests with the race detector. They leave out SQLite, which is C translated to
// Go: checking it took half of the control plane's tests' time.
var RaceFlags = []string{
	"-race", "-gcflags=modernc.org/...=-d=checkptr=0", "-gcflags=modernc.org/sqlite/lib=-race=false",
}

// IsRelease reports whether the tests of a release run.
func IsRelease() bool { return "PIPEOPS_TEST_SUITE="+os.Getenv("PIPEOPS_TEST_SUITE") == Environment }

// Release leaves a test out of the tests of a change. covers describes in a few words what the test
// adds.
func Release(t testing.TB, covers string) {
	t.Helper()
	if !IsRelease() {
		t.Skip("release suite: " + covers) // skips.txt expects it
	}
}
