package operatorapi_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

func TestSummary(t *testing.T) {
	for want, e := range map[string]struct {
		kind announce.Type
		data any
	}{
		"shop/web 1/2 ready: it waits": {"app.progressing", announce.AppEvent{Namespace: "shop", Name: "web", Ready: 1, Replicas: 2, Message: "it\n waits"}},
		"Down (critical): it is gone":  {announce.AlertFiring, announce.AlertEvent{Fingerprint: "1", Name: "Down", Severity: "critical", Summary: "it is\tgone"}},
		"www.example.com: no proof":    {announce.RouteSuspended, announce.RouteEvent{Host: "www.example.com", Reason: "no proof"}},
		"online, Kubernetes v1.36.3, 2 nodes, update failed v2 from v1: broken": {announce.AgentOnline, announce.Agent{
			ID: "a1", Name: "shop", State: announce.StateOnline, KubernetesVersion: "v1.36.3", Capacity: announce.Capacity{Nodes: 2},
			Update: &announce.AgentUpdate{State: "failed", From: "v1", To: "v2", Reason: "broken"},
		}},
		"its identity is in use twice: a copy of the whole machine or cluster, called pod-2, comes from 192.0.2.1": {announce.AgentCloned, announce.Agent{
			ID: "a1", Name: "shop", State: announce.StateOnline, Clones: []announce.Clone{{Instance: "pod-2", Address: "192.0.2.1"}},
		}},
		"": {"unknown", struct{}{}},
	} {
		data, err := json.Marshal(e.data)
		require.NoError(t, err)
		assert.Equal(t, want, operatorapi.Summary(announce.Event{AgentID: "a1", Type: e.kind, Data: data}))
	}
	assert.Equal(t, "off", operatorapi.UpdateDetail(nil))
	assert.Equal(t, "current", operatorapi.UpdateState(&announce.AgentUpdate{State: "current"}))
}
