package controlplane

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

func TestConsole_AppsWithoutBroker(t *testing.T) {
	p := start(t)
	shop := p.registered("shop")
	require.NoError(t, shop.client.Events(t.Context(), controlapi.EventsRequest{Events: []controlapi.Event{
		{ID: "1", Type: "app.healthy", Time: p.clock.now(), App: &controlapi.AppEvent{Namespace: "production", Name: "web", Replicas: 2, Ready: 2}},
		{ID: "2", Type: "app.failed", Time: p.clock.now(), App: &controlapi.AppEvent{
			Namespace: "production", Name: "db", Replicas: 1, Cause: "OutOfMemory", Message: "the container needs more memory", Fix: "raise the limit",
		}},
		{ID: "3", Type: "app.healthy", Time: p.clock.now(), App: &controlapi.AppEvent{Namespace: "production", Name: "gone"}},
		{ID: "4", Type: "app.removed", Time: p.clock.now(), App: &controlapi.AppEvent{Namespace: "production", Name: "gone"}},
	}}))
	status, body := p.signedIn(p.operator("vic", operators.RoleViewer)).get("/console/agents/shop")
	require.Equal(t, http.StatusOK, status, body)
	for _, text := range []string{"the container needs more memory", "raise the limit", "OutOfMemory", "2/2", "app.removed"} {
		assert.Contains(t, body, text)
	}
	assert.NotContains(t, body, "app=gone")
	assert.NotContains(t, body, "No App is known")
	assert.Len(t, p.queued(), 5, "all wait for a broker still")

	client, err := operatorapi.NewClient(p.operator("olga", operators.RoleOperator), "test")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	_, err = operatorapi.RevokeAgent.Do(t.Context(), client, operatorapi.AgentInput{Agent: "shop"})
	require.NoError(t, err)
	timeline, err := p.admin.Agents.Timeline(t.Context(), shop.id.AgentID, announce.TimelineQuery{Limit: 1})
	require.NoError(t, err)
	assert.Equal(t, []announce.Type{announce.AgentRemoved}, typesOf(timeline.Events), "operators' changes are in it")
}
