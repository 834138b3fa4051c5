package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCoverageIsHeldAgainstTheOneThatIsKept(t *testing.T) {
	for _, c := range []struct {
		kept    string
		now     float64
		says    string
		failure string
	}{
		{"# no number\n", 80, "write 80.0% into", ""},
		{"80.0%\n", 79.95, "", ""},
		{"80.0%\n", 79.8, "", "line coverage fell from 80.0% to 79.8%"},
		{"80.0%\n", 81, "rose from 80.0%: write 81.0%", ""},
		{"many\n", 80, "", "coverage.txt: line 1"},
	} {
		var out strings.Builder
		err := compare(&out, c.kept, c.now)
		if c.failure != "" {
			require.ErrorContains(t, err, c.failure)
			continue
		}
		require.NoError(t, err)
		if c.says == "" {
			require.Empty(t, out.String())
		}
		require.Contains(t, out.String(), c.says)
	}
	require.NoError(t, compare(&strings.Builder{}, baselineFile, 100), "what is kept can be read")
}

// TestCoverRunsWhatAChangeLeavesOut of the packages that need no machines for it.
func TestCoverRunsWhatAChangeLeavesOut(t *testing.T) {
	m := repository(t)
	var all []string
	suites := map[string]bool{}
	for _, j := range coverJobs(m, "tests", "programs") {
		require.False(t, j.race)
		all = append(all, j.packages...)
		for _, pkg := range j.packages {
			suites[short(pkg)] = slices.Contains(j.env, release[0])
		}
	}
	require.ElementsMatch(t, m.tested(), all, "each package once")
	for pkg, whole := range map[string]bool{
		"internal/app": true, "agent": true, "internal/controlplane": true, "test/e2e": true, "test/chart": true,
		"test/install": false, "test/chaos": false, "test/failures": false,
	} {
		require.Equal(t, whole, suites[pkg], pkg)
	}
}

func TestCoverageCountsLinesOfProductionCode(t *testing.T) {
	file := filepath.Join(t.TempDir(), "profile.txt")
	require.NoError(t, os.WriteFile(file, []byte("mode: set\n"+
		modulePath+"/agent/a.go:1.1,4.2 3 1\n"+
		modulePath+"/agent/a.go:4.2,5.2 1 0\n"+ // line 4 ran in the block before
		modulePath+"/internal/app/b.go:7.1,8.2 1 0\n"+
		modulePath+"/internal/app/b.go:8.2,8.9 1 2\n"+
		modulePath+"/internal/app/zz_generated.deepcopy.go:1.1,99.2 1 0\n"+
		modulePath+"/test/harness/c.go:1.1,99.2 1 0\n"), 0o600))
	c, err := readProfile(file)
	require.NoError(t, err)
	var out strings.Builder
	c.print(&out)
	require.Equal(t, "\nlines of production code that ran:\n"+
		"   50.0%      2 lines  internal/app\n"+
		"   80.0%      5 lines  agent\n"+
		"line coverage of production code: 71.4% of 7 lines\n", out.String())

	require.NoError(t, os.WriteFile(file, []byte("mode: set\n"), 0o600))
	_, err = readProfile(file)
	require.ErrorContains(t, err, "no coverage in it")
}
