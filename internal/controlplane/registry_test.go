package controlplane

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

func TestRegister(t *testing.T) {
	p := start(t)
	c := p.cluster("shop")
	token := p.token(func(o *operators.TokenOptions) { o.Labels = map[string]string{"region": "eu"} })
	require.NoError(t, c.register(token))

	cert, err := ca.ParseCertificate(c.id.Certificate)
	require.NoError(t, err)
	assert.Equal(t, []string{c.id.AgentID + ".agents.pipeops.internal", "kubernetes." + c.id.AgentID + ".agents.pipeops.internal"}, cert.DNSNames)
	assert.Equal(t, "spiffe://pipeops.internal/agent/"+c.id.AgentID, cert.URIs[0].String())
	assert.Equal(t, c.id.ServerName, cert.DNSNames[0])
	assert.Equal(t, p.Advertised().Tunnel, c.id.Tunnel.Address)
	assert.Equal(t, 30, c.id.HeartbeatInterval)

	events := p.queued()
	require.Equal(t, []announce.Type{announce.AgentRegistered}, typesOf(events))
	agent, err := events[0].Agent()
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"own": "label", "region": "eu"}, agent.Labels)
	assert.Equal(t, announce.StatePending, agent.State)
	assert.Equal(t, []announce.Endpoint{{Address: p.Advertised().Edge, ServerName: c.id.ServerName}}, agent.Endpoints)

	tokens, err := p.admin.Tokens.List(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 1, tokens[0].Uses)
	assert.Equal(t, c.id.AgentID, tokens[0].LastUsedBy)
}

// TestHeartbeat_Standby: two versions of an agent run side by side, as in the middle of an update.
func TestHeartbeat_Standby(t *testing.T) {
	p := start(t)
	c := p.cluster("shop")
	require.NoError(t, c.register(p.token()))
	require.NoError(t, c.beat())
	before := typesOf(p.queued())
	standby := controlapi.Heartbeat{Clock: p.clock.now(), AgentVersion: "2.0", RunnerAPIVersion: "v1", TunnelPhase: "connected", Standby: true}
	asked := p.clock.now()
	for range 2 {
		_, err := c.client.Heartbeat(t.Context(), standby)
		require.NoError(t, err)
	}
	assert.Equal(t, before, typesOf(p.queued()), "it is no news")
	require.NoError(t, p.liveness.Flush(t.Context()))
	a, err := p.store.Agent(t.Context(), c.id.AgentID)
	require.NoError(t, err)
	assert.Equal(t, "1.0", a.AgentVersion)
	assert.Equal(t, 1, a.Capacity.Nodes)
	assert.False(t, a.LastSeen.Before(asked.Truncate(time.Microsecond)), "but it lives")

	standby.Standby = false // it leads now
	_, err = c.client.Heartbeat(t.Context(), standby)
	require.NoError(t, err)
	assert.Equal(t, append(before, announce.AgentUpdated), typesOf(p.queued()))
}

func TestRenew(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	first, firstKey := c.id, c.key

	next := newKey(t)
	_, err := c.client.Renew(t.Context(), csr(t, next))
	require.NoError(t, err)
	require.NoError(t, c.beat(), "the old certificate is good until the new one is used")
	_, err = c.client.Renew(t.Context(), csr(t, newKey(t)))
	require.NoError(t, err, "the answer may have been lost: the old key renews again")
	id, err := c.client.Renew(t.Context(), csr(t, next))
	require.NoError(t, err)
	c.adopt(id, next)
	require.NoError(t, c.beat())

	third := newKey(t)
	id, err = c.client.Renew(t.Context(), csr(t, third))
	require.NoError(t, err)
	c.adopt(id, third)
	require.NoError(t, c.beat())
	c.adopt(first, firstKey)
	requireProblem(t, c.beat(), controlapi.CodeCertificateUnknown, "another key")
}

func TestRecover(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	require.NoError(t, c.beat())
	p.clock.forward(30 * 24 * time.Hour)
	requireProblem(t, c.beat(), controlapi.CodeCertificateExpired, "was valid from", "old key")

	next := newKey(t)
	_, err := c.client.Recover(t.Context(), c.id.Certificate, newKey(t), csr(t, next))
	requireProblem(t, err, controlapi.CodeCertificateUnknown, "proof")
	_, err = c.client.Recover(t.Context(), "nonsense", c.key, csr(t, next))
	requireProblem(t, err, problem.Invalid, "oldCertificate")
	_, err = c.client.Recover(t.Context(), start(t).registered("shop").id.Certificate, c.key, csr(t, next))
	requireProblem(t, err, controlapi.CodeCertificateUnknown, "not one of this control plane's")

	id, err := c.client.Recover(t.Context(), c.id.Certificate, c.key, csr(t, next))
	require.NoError(t, err)
	assert.Equal(t, c.id.AgentID, id.AgentID)
	old, oldKey := c.id, c.key
	c.adopt(id, next)
	require.NoError(t, c.beat())

	t.Run("but not when it was revoked", func(t *testing.T) {
		_, err := p.admin.Agents.Revoke(t.Context(), "shop")
		require.NoError(t, err)
		_, err = c.client.Recover(t.Context(), old.Certificate, oldKey, csr(t, next))
		requireProblem(t, err, controlapi.CodeRevoked, "agent delete")
	})
}

func TestRevokeAgent(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	_, err := p.admin.Agents.Remove(t.Context(), "shop")
	require.ErrorContains(t, err, "agent revoke")
	_, err = p.admin.Agents.Revoke(t.Context(), c.id.AgentID)
	require.NoError(t, err)
	_, err = p.admin.Agents.Revoke(t.Context(), c.id.AgentID)
	require.NoError(t, err, "again is harmless")

	requireProblem(t, c.beat(), controlapi.CodeRevoked, "shop", "agent delete")
	_, err = c.client.Renew(t.Context(), csr(t, c.key))
	requireProblem(t, err, controlapi.CodeRevoked)
	requireProblem(t, c.register(p.token()), controlapi.CodeRevoked)
	require.NoError(t, p.cluster("shop2").register(p.token()))
	assert.Equal(t, []announce.Type{announce.AgentRegistered, announce.AgentRemoved, announce.AgentRegistered}, typesOf(p.queued()))

	_, err = p.admin.Agents.Remove(t.Context(), "shop")
	require.NoError(t, err)
	requireProblem(t, c.beat(), controlapi.CodeAgentUnknown, "register again")
	old := c.id.AgentID
	require.NoError(t, c.register(p.token()))
	assert.NotEqual(t, old, c.id.AgentID)
}

func TestEvents_QueuedOnce(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	event := func(id string) controlapi.Event {
		return controlapi.Event{ID: id, Type: "app.failed", Time: time.Now(), App: &controlapi.AppEvent{
			Namespace: "web", Name: "api", Generation: 2, Replicas: 3, Ready: 1, Cause: "ImageNotFound", Message: "no such image", Fix: "push it"}}
	}
	require.NoError(t, c.client.Events(t.Context(), controlapi.EventsRequest{Events: []controlapi.Event{event("1"), event("2")}}))
	require.NoError(t, c.client.Events(t.Context(), controlapi.EventsRequest{Events: []controlapi.Event{event("2"), event("3")}}))
	events := p.queued()
	require.Len(t, events, 4)
	for i, e := range events {
		assert.Equal(t, uint64(i+1), e.Sequence)
	}
	app, err := events[3].App()
	require.NoError(t, err)
	assert.Equal(t, announce.AppEvent{Namespace: "web", Name: "api", Generation: 2, Replicas: 3, Ready: 1,
		Cause: "ImageNotFound", Message: "no such image", Fix: "push it"}, app)
}

// TestEvents_RefuseFormerLeader: what the former leader was about to send arrives after the next
// one took over.
func TestEvents_RefuseFormerLeader(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	tell := func(kind, lease string, term int64) error {
		return c.client.Events(t.Context(), controlapi.EventsRequest{
			Leader: &controlapi.Leadership{Lease: lease, Term: term, Call: 1},
			Events: []controlapi.Event{{ID: fmt.Sprint(kind, lease, term), Type: kind, Time: time.Now(), App: &controlapi.AppEvent{Namespace: "web", Name: "api"}}},
		})
	}
	require.NoError(t, tell("app.progressing", "first", 1))
	require.NoError(t, tell("app.healthy", "first", 1))
	require.NoError(t, tell("app.removed", "first", 2))
	requireProblem(t, tell("app.degraded", "first", 1), problem.Conflict, "leads no more")
	require.NoError(t, tell("app.progressing", "first", 2))
	require.NoError(t, c.client.Events(t.Context(), controlapi.EventsRequest{Leader: &controlapi.Leadership{Lease: "first", Term: 3, Call: 1}}))
	requireProblem(t, tell("app.removed", "first", 2), problem.Conflict, "leads no more")
	require.NoError(t, tell("app.healthy", "second", 0), "the Lease was deleted and made anew")
	assert.Equal(t, []announce.Type{
		announce.AgentRegistered, "app.progressing", "app.healthy", "app.removed", "app.progressing", "app.healthy",
	}, typesOf(p.queued()))
}

// TestEvents_RefuseLateCalls: the agent gave up a call, and has sent more when that call arrives.
func TestEvents_RefuseLateCalls(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	tell := func(term, call int64, kinds ...string) error {
		told := controlapi.EventsRequest{Leader: &controlapi.Leadership{Lease: "first", Term: term, Call: call}}
		for _, kind := range kinds {
			told.Events = append(told.Events, controlapi.Event{ID: kind, Type: kind, Time: time.Now(), App: &controlapi.AppEvent{Namespace: "web", Name: "api"}})
		}
		return c.client.Events(t.Context(), told)
	}
	require.NoError(t, tell(1, 1))
	require.NoError(t, tell(1, 3, "app.removed"))
	requireProblem(t, tell(1, 2, "app.progressing"), problem.Conflict, "came after later ones")
	require.NoError(t, tell(1, 3, "app.removed"), "the same once more")
	require.NoError(t, tell(2, 1, "app.healthy"), "the next one counts anew")
	requireProblem(t, tell(1, 4, "app.degraded"), problem.Conflict, "leads no more")
	requireProblem(t, tell(2, 0, "app.degraded"), problem.Invalid, "call")
	assert.Equal(t, []announce.Type{announce.AgentRegistered, "app.removed", "app.healthy"}, typesOf(p.queued()))
}

func TestHeartbeat_WritesChanges(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	require.NoError(t, c.beat())
	before, err := p.store.Agent(t.Context(), c.id.AgentID)
	require.NoError(t, err)
	used := int64(500)
	beat := c.heartbeat()
	beat.Capacity.UsedCPUMillis = &used
	for range 5 {
		_, err := c.client.Heartbeat(t.Context(), beat)
		require.NoError(t, err)
	}
	after, err := p.store.Agent(t.Context(), c.id.AgentID)
	require.NoError(t, err)
	assert.Equal(t, before, after, "nothing is written for a heartbeat that says nothing new")
	_, err = p.admin.Runners.Create(t.Context(), "r", time.Hour, false)
	require.NoError(t, err)
	list, err := p.view.Snapshot(t.Context(), "r")
	require.NoError(t, err)
	assert.Equal(t, &used, list[0].Capacity.UsedCPUMillis, "the snapshot knows it all the same")

	beat.Capacity.Nodes = 2
	_, err = c.client.Heartbeat(t.Context(), beat)
	require.NoError(t, err)
	assert.Equal(t, []announce.Type{announce.AgentRegistered, announce.AgentUpdated, announce.AgentUpdated}, typesOf(p.queued()))

	require.NoError(t, p.liveness.Flush(t.Context()))
	after, err = p.store.Agent(t.Context(), c.id.AgentID)
	require.NoError(t, err)
	assert.True(t, after.LastSeen.After(before.LastSeen))
	assert.Equal(t, &used, after.Capacity.UsedCPUMillis)
}
