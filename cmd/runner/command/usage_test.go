package command

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/base"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func TestUsageError_NamesHelp(t *testing.T) {
	w := newWorld(t)
	code, _, stderr := w.run(t, "secret", "set", "--bogus")
	assert.Equal(t, base.ExitUsage, code)
	assert.Contains(t, stderr, "see `pipeops-runner secret set --help`")

	code, _, stderr = w.run(t, "agents", "--credentials", filepath.Join(t.TempDir(), "missing.json"))
	assert.Equal(t, base.ExitUsage, code)
	assert.Contains(t, stderr, "pipeops-controlplane runner create")
	assert.NotContains(t, stderr, "--help", "it is no mistake in how the command is written")
}

func TestVersion(t *testing.T) {
	w := newWorld(t)
	code, stdout, _ := w.run(t, "--version")
	assert.Equal(t, base.ExitOK, code)
	assert.Contains(t, stdout, version)
}

// TestWrites_HaveDryRunAndKey: --dry-run and --idempotency-key.
func TestWrites_HaveDryRunAndKey(t *testing.T) {
	root := newRoot(&base.CLI{})
	seen := 0
	for _, call := range runnerapi.Calls() {
		if call.Method == http.MethodGet || call.Command == "" {
			continue
		}
		cmd, _, err := root.Find(strings.Fields(call.Command))
		require.NoError(t, err, call.Command)
		for _, flag := range []string{"dry-run", "idempotency-key"} {
			assert.NotNil(t, cmd.Flags().Lookup(flag), "%s --%s", call.Command, flag)
		}
		seen++
	}
	assert.Greater(t, seen, 20)
}
