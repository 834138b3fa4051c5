package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// TestTheCommandsOfTheCertificatesDocument runs them as they are written.
func TestTheCommandsOfTheCertificatesDocument(t *testing.T) {
	blocks, err := harness.Shell("docs/certificates.md")
	require.NoError(t, err)
	require.Len(t, blocks, 5)
	var script strings.Builder
	script.WriteString("served\n")
	for i := range blocks {
		fmt.Fprintf(&script, "exec sh -eu block%d.sh\n", i)
	}
	script.WriteString("stderr 'The new CA is dropped'\nexec pipeops-controlplane ca show\nstdout ' former '\n")
	for i, block := range blocks {
		fmt.Fprintf(&script, "-- block%d.sh --\n%s", i, block)
	}
	file := filepath.Join(t.TempDir(), "certificates.txtar")
	require.NoError(t, os.WriteFile(file, []byte(script.String()), 0o600))
	testscript.Run(t, testscript.Params{
		Files: []string{file}, RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("PIPEOPS_DATA_DIR", filepath.Join(env.WorkDir, "data"))
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"served": func(ts *testscript.TestScript, _ bool, args []string) { served(ts, args) },
		},
	})
}
