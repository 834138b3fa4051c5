package controlplane

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// TestReleaseOffer_Progress counts only the agents to which the release is offered.
func TestReleaseOffer_Progress(t *testing.T) {
	p := start(t)
	early := map[string]string{"ring": "early"}
	for i, a := range []store.Agent{
		{AgentVersion: "v1.2.0", Update: &announce.AgentUpdate{State: "done", From: "v1.1.0", To: "v1.2.0"}},
		{AgentVersion: "v1.3.0"},
		{AgentVersion: "v1.1.0"},
		{AgentVersion: "v1.1.0", Update: &announce.AgentUpdate{State: "idle"}},
		{AgentVersion: "v1.1.0", Update: &announce.AgentUpdate{State: "waiting", To: "v1.2.0", Reason: "the window opens at 22:00"}},
		{AgentVersion: "v1.1.0", Update: &announce.AgentUpdate{State: "updating", To: "v1.2.0"}},
		{AgentVersion: "v1.1.0", Update: &announce.AgentUpdate{State: "failed", To: "v1.2.0", Reason: "the new pods did not become ready"}},
		{AgentVersion: "v1.1.0", Update: &announce.AgentUpdate{State: "refused", To: "v1.2.0", Reason: "its owner pins v1.1"}},
		{AgentVersion: "v1.1.0", Update: &announce.AgentUpdate{State: "failed", To: "v1.0.9", Reason: "an earlier offer"}},
		{AgentVersion: "v1.2.0", RevokedAt: p.clock.now()},
		{AgentVersion: "v1.1.0", Labels: map[string]string{"ring": "late"}},
	} {
		a.ID, a.Name, a.ClusterUID, a.State, a.RegisteredAt, a.LastSeen = fmt.Sprintf("agent%02d", i), fmt.Sprintf("shop-%02d", i), fmt.Sprint("uid", i), announce.StateOnline, p.clock.now(), p.clock.now()
		if a.Labels == nil {
			a.Labels = early
		}
		require.NoError(t, p.store.Update(t.Context(), func(tx *store.Tx) error { return tx.InsertAgent(t.Context(), a) }))
	}
	_, err := p.admin.Releases.Offer(t.Context(), releaseOptions(t, "v1.2.0", func(o *operators.ReleaseOptions) { o.Labels = early }))
	require.NoError(t, err)
	viewer := p.operator("vic", operators.RoleViewer)
	list, err := operatorapi.ListReleases.Do(t.Context(), p.as(viewer), struct{}{})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	assert.Equal(t, operators.Progress{
		Agents: 9, Taken: 2, Updating: 1, Waiting: 3, Off: 1, Failed: 2,
		Failures: []operators.Failure{
			{ID: "agent06", Name: "shop-06", State: "failed", Reason: "the new pods did not become ready"},
			{ID: "agent07", Name: "shop-07", State: "refused", Reason: "its owner pins v1.1"},
		},
	}, list.Items[0].Progress)

	status, body := p.signedIn(viewer).get("/console/releases")
	require.Equal(t, http.StatusOK, status, body)
	for _, text := range []string{"2 of 9 took it", "1 updates", "3 wait", "1 has self-update off", "2 failed", "Where v1.2.0 failed", "/console/agents/agent06", "The new pods did not become ready"} {
		assert.Contains(t, body, text)
	}
}
