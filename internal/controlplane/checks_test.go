package controlplane

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// TestHeartbeat_KeepsChecks: checks are kept with the time of each first report, and shown to
// operators alone.
func TestHeartbeat_KeepsChecks(t *testing.T) {
	p := start(t)
	shop := p.registered("shop")
	beat := func(checks *controlapi.Checks) *store.Checks {
		_, err := shop.client.Heartbeat(t.Context(), controlapi.Heartbeat{Clock: p.clock.now(), AgentVersion: "v1.0.0", Checks: checks})
		require.NoError(t, err)
		found, err := p.admin.Agents.Get(t.Context(), "shop", 0)
		require.NoError(t, err)
		return found.Checks
	}
	found := func(list ...controlapi.Finding) *controlapi.Checks { return &controlapi.Checks{Findings: list} }
	b := p.signedIn(p.operator("vic", operators.RoleViewer))
	page := func() string {
		status, body := b.get("/console/agents/shop")
		require.Equal(t, http.StatusOK, status, body)
		return body
	}
	assert.Nil(t, beat(nil))
	assert.Contains(t, page(), "No check has been reported")

	memory := controlapi.Finding{Check: "memory", Status: "failed", Detail: "40 MiB are\x1b[2J available", Fix: "stop something else"}
	queued := len(p.queued())
	first := beat(found(memory)).Findings
	require.Len(t, first, 1)
	assert.NotContains(t, first[0].Detail, "\x1b")
	assert.Len(t, p.queued(), queued, "Runners are told nothing of it")
	body := page()
	for _, text := range []string{"Check failed: memory", "40 MiB are", "stop something else"} {
		assert.Contains(t, body, text)
	}
	_, fleet := b.get("/console/?show=wrong")
	assert.Contains(t, fleet, "Check failed: memory", "a failed check needs attention")

	p.clock.forward(time.Minute)
	memory.Detail = "41 MiB are\x1b[2J available"
	assert.Equal(t, first, beat(found(memory)).Findings, "a figure is not worth a write")
	assert.Equal(t, first, beat(nil).Findings, "a new leader has not looked yet")
	paused := controlapi.Finding{Check: "policy", Status: "warning", Detail: "paused"}
	both := beat(found(memory, paused)).Findings
	require.Len(t, both, 2)
	assert.Equal(t, first[0].Since, both[0].Since)
	assert.True(t, both[1].Since.After(both[0].Since))

	assert.Empty(t, beat(found()).Findings)
	assert.Contains(t, page(), "find nothing wrong")

	_, err := shop.client.Heartbeat(t.Context(), controlapi.Heartbeat{Clock: p.clock.now(), Checks: found(make([]controlapi.Finding, controlapi.MaxFindings+1)...)})
	require.Error(t, err, "their number is bounded")
	_, err = shop.client.Heartbeat(t.Context(), controlapi.Heartbeat{Clock: p.clock.now(), Checks: found(controlapi.Finding{Check: "memory", Status: "ok", Detail: "fine"})})
	require.Error(t, err, "what is well is not reported")
}
