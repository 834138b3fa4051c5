// Package rendertest makes the agent's program, as it is shipped, render for tests. A test's own
// program, with the race detector, maps too much memory to be held to a limit.
package rendertest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/render"
	"github.com/pipeops/pipeops-vm-agent/test/programs"
)

// Process renders by the agent's program.
func Process(t testing.TB) render.Process {
	t.Helper()
	path, err := programs.Agent.Build(t.Context())
	require.NoError(t, err)
	return render.Process{Command: []string{path, render.Argument}}
}
