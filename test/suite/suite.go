// Package suite decides which tests run: those that a change must pass, or also those that a
// release must pass.
package suite

import (
	"os"
	"testing"
)

// Variable is the environment variable that has the tests of a release run, too, when it is All.
const (
	Variable = "PIPEOPS_TEST_SUITE"
	All      = "all"
)

// RaceFlags compile tests with the race detector. They leave out SQLite, which is C translated to
// Go: checking it took half of the control plane's tests' time.
var RaceFlags = []string{
	"-race", "-gcflags=modernc.org/...=-d=checkptr=0", "-gcflags=modernc.org/sqlite/lib=-race=false",
}

// Skipped is how the reason begins for which a test is left out of the tests of a change.
const Skipped = "release suite: "

// IsRelease reports whether the tests of a release run.
func IsRelease() bool { return os.Getenv(Variable) == All }

// Release leaves a test out of the tests of a change. covers describes in a few words what the test
// adds.
func Release(t testing.TB, covers string) {
	t.Helper()
	if !IsRelease() {
		t.Skip(Skipped + covers)
	}
}
