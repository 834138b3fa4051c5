package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
