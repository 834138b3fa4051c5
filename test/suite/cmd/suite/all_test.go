package main

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAllLeavesNothingOut that `make test` runs: what is not run before the parts, a part runs.
func TestAllLeavesNothingOut(t *testing.T) {
	m := repository(t)
	var before []string
	for _, j := range m.beforeParts() {
		before = append(before, j.packages...)
	}
	require.Contains(t, before, modulePath+"/test/e2e", "the part journeys selects some of its tests")
	require.Contains(t, before, modulePath+"/test/chaos")
	require.Contains(t, before, "./...", "the benchmark's own module")
	whole := m.runWhole()
	for _, pkg := range m.tested() {
		require.NotEqual(t, slices.Contains(before, pkg), whole[pkg], "%s runs once", pkg)
	}
}

func TestAPartRunsAPackageWholeWhereItLeavesNothingOut(t *testing.T) {
	for _, c := range []struct {
		job   job
		whole bool
	}{
		{job{env: release, race: true, args: []string{"-p", "2"}}, true},
		{job{args: []string{"-run", "^TestX$"}}, false},
		{job{args: []string{"-short"}}, false},
		{job{env: []string{databaseVariable + "=postgres"}}, false},
	} {
		require.Equal(t, c.whole, c.job.runsWhole(), c.job)
	}
}
