package controlplane

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
)

// TestConsole_ShowsNodes: an operator who acts as a Runner sees the nodes. Others read why they do
// not.
func TestConsole_ShowsNodes(t *testing.T) {
	t.Parallel()
	p := start(t)
	s := p.withApp(&auditLog{})
	p.registered("quiet")
	p.issue("ops", "env=prod")
	p.issue("lab", "env=test")
	b := p.signedIn(p.operator("vic", operators.RoleViewer))
	page := func(agent string) string {
		t.Helper()
		status, body := b.get("/console/agents/" + agent + "/nodes")
		assert.Equal(t, http.StatusOK, status, body)
		return body
	}
	_, body := b.get("/console/agents/shop")
	assert.Contains(t, body, "/nodes\">Show the nodes</a>")
	body = page("shop")
	assert.Contains(t, body, "operator runner set vic RUNNER")
	assert.NotContains(t, body, "/live/", "nothing follows an agent that may not be asked")
	for _, r := range p.records(1) {
		assert.NotEqual(t, runnerapi.AuditRefused, r.Outcome, "the page must not make a call that the agent refuses")
	}

	p.actAs("vic", "ops")
	body = page("shop")
	for _, text := range []string{runnertest.NodeName, "worker", "0.40 of 1.90 cores", "3 of 110", "v1.36.3", "pipeops-runner node list shop", "/live/agents/"} {
		assert.Contains(t, body, text)
	}
	called := false
	for _, call := range s.backend.Calls() {
		called = called || call.Verb == "Nodes.List"
	}
	assert.True(t, called)

	body = page("quiet")
	assert.Contains(t, body, "only an agent that is online reports its nodes")
	p.actAs("vic", "lab")
	assert.Contains(t, page("shop"), "refuses Runner lab")
	status, _ := b.get("/console/agents/nowhere/nodes")
	assert.Equal(t, http.StatusNotFound, status)
}
