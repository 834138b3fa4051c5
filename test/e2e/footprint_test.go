package e2e

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// idleMemory is the most memory of its own that an idle agent may keep resident.
const idleMemory = 40 << 20

func TestFootprint_IdleAgent(t *testing.T) {
	// A fresh pod: what the other tests made it do is not idling.
	require.NoError(t, sys.KillAgent(t.Context()))
	require.NoError(t, sys.AwaitAgent(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var memory int64
	err := harness.Eventually(ctx, "the agent is below its limit", func(context.Context) (err error) {
		if memory, err = sys.AgentOwnMemory(); err != nil {
			return err
		}
		if memory >= idleMemory {
			return assert.AnError
		}
		return nil
	})
	all, _ := sys.AgentMemory(t.Context())
	t.Logf("%.1f MiB resident, %.1f MiB of them its own", float64(all)/(1<<20), float64(memory)/(1<<20))
	assert.NoError(t, err, "%d bytes resident, at most %d", memory, idleMemory)
}

func TestFootprint_OnlyHealthListens(t *testing.T) {
	pid, err := sys.AgentPID()
	require.NoError(t, err)
	ports, err := harness.ListeningPorts(pid)
	require.NoError(t, err)
	assert.Equal(t, []string{"tcp/8080"}, ports)
}
