package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// runCI runs .ci/run with a make that only prints what it is asked for, and with which environment.
func runCI(t *testing.T) string {
	t.Helper()
	script := filepath.Join("..", "..", "..", "..", ".ci", "run")
	_, err := os.ReadFile(script) // Go's test cache has it as an input from now on
	require.NoError(t, err)
	dir := t.TempDir()
	printer := "#!/bin/sh\necho \"CI=$CI make $*\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "make"), []byte(printer), 0o755))
	cmd := exec.CommandContext(t.Context(), script)
	cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

func TestCIRunIsStrictByItself(t *testing.T) {
	out := runCI(t)
	for _, target := range []string{"demo", "test", "check", "test-touched"} {
		require.Contains(t, out, "CI=true make "+target)
	}
}

func TestCIGivesTheReleaseSuiteWhatIsLeftOfItsTime(t *testing.T) {
	require.Regexp(t, `make test-touched LIMIT=(3120|31[01]\d|30\d\d)s\n$`, runCI(t))
}
