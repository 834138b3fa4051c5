package command

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/base"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

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
