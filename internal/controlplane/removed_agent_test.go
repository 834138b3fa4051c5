package controlplane

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// TestRemovedAgent_NotAnnounced: neither a call that was allowed just before the revocation nor a
// new edge announces a removed agent. A Runner would take it for an agent that came back.
func TestRemovedAgent_NotAnnounced(t *testing.T) {
	p := start(t)
	kept, revoked := p.registered("kept"), p.registered("revoked")
	p.registered("deleted")
	listed, err := p.store.Agents(t.Context())
	require.NoError(t, err)
	for _, name := range []string{"revoked", "deleted"} {
		_, err := p.admin.Agents.Revoke(t.Context(), name)
		require.NoError(t, err)
	}
	_, err = p.admin.Agents.Remove(t.Context(), "deleted")
	require.NoError(t, err)
	before := len(p.queued())

	id := revoked.id.AgentID
	_, err = p.fleet.Heartbeat(t.Context(), id, controlapi.Heartbeat{Clock: p.clock.now(), AgentVersion: "v9.0.0"})
	requireProblem(t, err, controlapi.CodeRevoked, "revoked")
	_, err = p.ControlPlane.routes.PutRoutes(t.Context(), id, controlapi.RoutesRequest{Routes: []controlapi.Route{routeTo("www.example.com", "/", "web")}})
	requireProblem(t, err, controlapi.CodeRevoked, "revoked")
	require.NoError(t, p.directory.Move(t.Context(), p.store, listed, "edge.example.org:443", p.clock.now))

	announced := p.queued()[before:]
	require.Len(t, announced, 1, "%v", typesOf(announced))
	assert.Equal(t, announce.AgentUpdated, announced[0].Type)
	assert.Equal(t, kept.id.AgentID, announced[0].AgentID)
}
