package controlplane

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// TestHeartbeat_KeepsComponents: components are kept and shown without control characters.
func TestHeartbeat_KeepsComponents(t *testing.T) {
	p := start(t)
	shop := p.registered("shop")
	beat := func(all ...controlapi.Component) announce.Agent {
		_, err := shop.client.Heartbeat(t.Context(), controlapi.Heartbeat{Clock: p.clock.now(), AgentVersion: "v1.0.0", Components: all})
		require.NoError(t, err)
		agents, err := p.admin.Agents.List(t.Context())
		require.NoError(t, err)
		require.Len(t, agents, 1)
		return agents[0]
	}
	bad := controlapi.Component{Name: "grafana", Version: "12.11.1", Cause: "ImageNotFound", Message: "no such\x1b[2J image"}
	got := beat(controlapi.Component{Name: "vpa", Version: "0.11.0", Ready: true}, bad).Components
	require.Len(t, got, 2)
	assert.Equal(t, "vpa 0.11.0: ready", got[0].String())
	assert.Equal(t, "ImageNotFound", got[1].Cause)
	assert.NotContains(t, got[1].Message, "\x1b")
	assert.Empty(t, beat().Components, "those that are gone")

	_, err := shop.client.Heartbeat(t.Context(), controlapi.Heartbeat{Clock: p.clock.now(), Components: make([]controlapi.Component, controlapi.MaxComponents+1)})
	require.Error(t, err, "their number is bounded")
}
