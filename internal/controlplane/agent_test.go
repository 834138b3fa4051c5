package controlplane

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// recover gets a certificate for one that has expired.
func (c *cluster) recover() {
	c.t.Helper()
	key := selfsigned.Key(c.t)
	id, err := c.client.Recover(c.t.Context(), c.id.Certificate, c.key, csr(c.t, key))
	require.NoError(c.t, err)
	c.adopt(id, key)
}

func TestRevokeAgent(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	tun, _ := c.connect()
	await.Until(t, "connected", func() bool { return p.tunnels.own.Connected(c.id.AgentID) })
	_, err := p.admin.Agents.Revoke(t.Context(), "shop") // as the CLI does, beside serve
	require.NoError(t, err)
	await.Until(t, "the tunnel is closed", func() bool { return !p.tunnels.own.Connected(c.id.AgentID) })
	await.Until(t, "and the agent knows that it is for good", func() bool { return tun.Status().Phase == tunnel.Refused })
	_, err = p.throughEdge(c)
	require.Error(t, err)
	requireProblem(t, c.beat(), controlapi.CodeRevoked, "shop", "agent delete")
	requireProblem(t, c.client.CheckIdentity(t.Context()), controlapi.CodeRevoked)
	_, err = c.client.Renew(t.Context(), csr(t, c.key))
	requireProblem(t, err, controlapi.CodeRevoked)
	requireProblem(t, c.register(p.token()), controlapi.CodeRevoked)

	_, err = p.admin.Agents.Remove(t.Context(), "shop")
	require.NoError(t, err)
	requireProblem(t, c.beat(), controlapi.CodeAgentUnknown, "register again")
	old := c.id.AgentID
	require.NoError(t, c.register(p.token()))
	assert.NotEqual(t, old, c.id.AgentID)
}

// TestDeleteAgent_ClosesTunnel: the control plane may not have read the database between the
// revocation and the deletion.
func TestDeleteAgent_ClosesTunnel(t *testing.T) {
	p := start(t)
	c, kept := p.registered("shop"), p.registered("kept")
	tun, _ := c.connect()
	_, _ = kept.connect()
	await.Until(t, "connected", func() bool { return len(p.tunnels.own.Agents()) == 2 })
	require.NoError(t, p.store.Update(t.Context(), func(tx *store.Tx) error { return tx.DeleteAgent(t.Context(), c.id.AgentID) }))
	await.Until(t, "the tunnel is closed", func() bool { return !p.tunnels.own.Connected(c.id.AgentID) })
	await.Until(t, "and the agent knows that it is for good", func() bool { return tun.Status().Phase == tunnel.Refused })
	assert.True(t, p.tunnels.own.Connected(kept.id.AgentID))
}

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

// auditChain is a log of that many records, told apart by who is in them.
func auditChain(t *testing.T, runner string, n int) []string {
	t.Helper()
	var lines []string
	prev := ""
	for seq := range n {
		line, err := json.Marshal(runnerapi.AuditRecord{Seq: int64(seq + 1), Prev: prev, Runner: runner, Command: "put-app"})
		require.NoError(t, err)
		prev = runnerapi.AuditHash(line)
		lines = append(lines, string(line))
	}
	return lines
}

// TestAgentAudit_Kept: an agent sends its log, sends it again, with a gap, and then one that does
// not continue it.
func TestAgentAudit_Kept(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	log := auditChain(t, "ci", 10)
	send := func(broken bool, lines ...string) int64 {
		t.Helper()
		answer, err := c.client.Audit(t.Context(), controlapi.AuditRequest{Lines: lines, Broken: broken})
		require.NoError(t, err)
		return answer.Seq
	}
	assert.EqualValues(t, 0, send(false))
	assert.EqualValues(t, 4, send(false, log[:4]...))
	assert.EqualValues(t, 4, send(false, log[:4]...), "what it has is passed over")
	assert.EqualValues(t, 6, send(false, log[2:6]...), "and what is new is taken")
	assert.EqualValues(t, 6, send(false, log[8:]...), "a gap is not")
	kept, err := p.store.AuditAhead(t.Context(), c.id.AgentID, 0, 100)
	require.NoError(t, err)
	require.Len(t, kept, 6)
	for i, l := range kept {
		assert.Equal(t, log[i], l.Line)
		assert.False(t, l.Broken)
	}

	other := auditChain(t, "somebody else", 3)
	assert.EqualValues(t, 6, send(false, other...), "another log is not taken for this one")
	assert.EqualValues(t, 3, send(true, other...), "but noted when the agent has no other")
	found, err := p.admin.Agents.Audit(t.Context(), "shop", runnerapi.AuditFilter{})
	require.NoError(t, err)
	require.Len(t, found.Items, 9)
	assert.Equal(t, []bool{false, false, true, false}, []bool{found.Items[0].Broken, found.Items[1].Broken, found.Items[2].Broken, found.Items[3].Broken})
	assert.EqualValues(t, 3, found.Head.Seq)
	found, err = p.admin.Agents.Audit(t.Context(), "shop", runnerapi.AuditFilter{By: "somebody else", Limit: 2})
	require.NoError(t, err)
	require.Len(t, found.Items, 2)
	found, err = p.admin.Agents.Audit(t.Context(), "shop", runnerapi.AuditFilter{By: "somebody else", Limit: 2, Before: found.Older})
	require.NoError(t, err)
	assert.Len(t, found.Items, 1, "the third, and no other")
	assert.Zero(t, found.Older)

	_, err = c.client.Audit(t.Context(), controlapi.AuditRequest{Lines: []string{"nonsense"}})
	requireProblem(t, err, problem.Invalid, "makes no sense", "audit verify")
}

func TestAgentAudit_Bounded(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	other := p.registered("other")
	add := func(c *cluster, from, n int) {
		lines := make([]store.AuditLine, n)
		for i := range lines {
			lines[i] = store.AuditLine{Seq: int64(from + i), Hash: fmt.Sprint(from + i), Line: "{}"}
		}
		require.NoError(t, p.store.Update(t.Context(), func(tx *store.Tx) error { return tx.AddAudit(t.Context(), c.id.AgentID, lines) }))
	}
	add(other, 1, 2)
	add(c, 1, store.AuditLength)
	add(c, store.AuditLength+1, 10)
	kept, err := p.store.AuditAhead(t.Context(), c.id.AgentID, 0, 2*store.AuditLength)
	require.NoError(t, err)
	require.Len(t, kept, store.AuditLength)
	assert.EqualValues(t, 11, kept[0].Seq)
	kept, err = p.store.AuditAhead(t.Context(), other.id.AgentID, 0, 10)
	require.NoError(t, err)
	assert.Len(t, kept, 2, "others' stay")
}

func (c *cluster) leaf() *x509.Certificate { return c.tlsConfig().Certificates[0].Leaf }

// TestAuthn_TrustsTunnelHandshake: the TLS of a connection has verified an agent's certificate. It
// is not verified again where it is needed later, by the first call in the tunnel for example.
func TestAuthn_TrustsTunnelHandshake(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	cfg := c.tlsConfig()
	leaf := *cfg.Certificates[0].Leaf
	leaf.Signature = nil // it cannot be verified again
	state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{&leaf}}
	_, err := p.authn.AgentOfTunnel(state)
	require.Error(t, err, "it was not verified")
	state.VerifiedChains = append(state.VerifiedChains, []*x509.Certificate{&leaf, p.ca.Intermediates()[0]})
	id, err := p.authn.AgentOfTunnel(state)
	require.NoError(t, err)
	assert.Equal(t, c.id.AgentID, id)
}

// copied is the identity of c in another cluster.
func (c *cluster) copied(uid string) *cluster {
	c.t.Helper()
	other := c.p.cluster(c.name)
	other.uid = uid
	other.adopt(c.id, c.key)
	var err error
	other.client, err = controlapi.NewClient(controlapi.ClientConfig{
		URL: c.p.Advertised().API, TLS: other.tls.Load, Log: zerolog.Nop(), Now: c.p.clock.now, Retries: -1,
		Origin: func() controlapi.Origin { return controlapi.Origin{ClusterUID: uid, Instance: "copy-1"} },
	})
	require.NoError(c.t, err)
	c.t.Cleanup(other.client.Close)
	return other
}

// renewWithProof renews by a live certificate with a proof that is none: what the agent's
// own client never sends.
func (c *cluster) renewWithProof(old string) error {
	c.t.Helper()
	body, err := json.Marshal(controlapi.RenewRequest{CSR: csr(c.t, selfsigned.Key(c.t)), Clock: c.p.clock.now(), OldCertificate: old, Proof: "x"})
	require.NoError(c.t, err)
	return refusal(c.p.call(c.p.withTLS(c.tls.Load()), http.MethodPost, "/v1/agent/renew", string(body), "Pipeops-Cluster", c.uid))
}

func (p *plane) clonesOf(id string) []announce.Clone {
	p.t.Helper()
	a, err := p.store.Agent(p.t.Context(), id)
	require.NoError(p.t, err)
	return a.Clones
}

// TestClone_RefusedInOtherCluster tries all that an agent can, with a Secret that was copied.
func TestClone_RefusedInOtherCluster(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	require.NoError(t, c.copied(c.uid).beat(), "a replica")
	require.Empty(t, p.clonesOf(c.id.AgentID))
	before := len(p.queued())

	other := c.copied("another-cluster")
	_, renewed := other.client.Renew(t.Context(), csr(t, selfsigned.Key(t)))
	_, handed := other.client.Audit(t.Context(), controlapi.AuditRequest{})
	for _, err := range []error{other.beat(), other.sends(nil, appEvent("1", announce.AppFailed)), renewed, handed, other.client.CheckIdentity(t.Context())} {
		requireProblem(t, err, controlapi.CodeIdentityCloned, "shop", "another-", "AGENT_TOKEN", "pipeops-agent-identity")
	}
	for _, old := range []string{"", "x", c.id.Certificate} {
		requireProblem(t, other.renewWithProof(old), controlapi.CodeIdentityCloned)
	}
	_, proved := other.client.Recover(t.Context(), c.id.Certificate, c.key, csr(t, selfsigned.Key(t)))
	requireProblem(t, proved, controlapi.CodeIdentityCloned)
	events := p.queued()[before:]
	require.Equal(t, []announce.Type{announce.AgentCloned}, typesOf(events), "it is announced once")
	agent, err := events[0].Agent()
	require.NoError(t, err)
	require.Len(t, agent.Clones, 1)
	clone := agent.Clones[0]
	assert.Equal(t, []string{"another-cluster", "copy-1", "127.0.0.1"}, []string{clone.ClusterUID, clone.Instance, clone.Address})
	require.NoError(t, c.beat(), "the agent itself is not disturbed")
	_, err = c.client.Renew(t.Context(), csr(t, selfsigned.Key(t)))
	require.NoError(t, err)

	p.clock.forward(2 * time.Minute)
	requireProblem(t, other.beat(), controlapi.CodeIdentityCloned)
	assert.Len(t, p.queued(), before+1, "and not again")
	assert.True(t, p.clonesOf(c.id.AgentID)[0].LastSeen.After(clone.LastSeen))

	t.Run("nor after it was away for long", func(t *testing.T) {
		p.clock.forward(30 * 24 * time.Hour)
		_, err := other.client.Recover(t.Context(), other.id.Certificate, other.key, csr(t, selfsigned.Key(t)))
		requireProblem(t, err, controlapi.CodeIdentityCloned)
	})
	t.Run("and is forgotten", func(t *testing.T) {
		p.clock.forward(25 * time.Hour)
		require.NoError(t, p.clones.Forget(t.Context()))
		assert.Empty(t, p.clonesOf(c.id.AgentID))
		events := p.queued()
		assert.Equal(t, announce.AgentUpdated, events[len(events)-1].Type)
	})
}

// in has an agent say that it is in a cluster.
func in(uid string) func(*tunnel.Config) {
	return func(cfg *tunnel.Config) { cfg.Cluster = func() string { return uid } }
}

// TestClone_LeavesTunnel: the copy has the very name of the agent's replica, as copied machines
// have.
func TestClone_LeavesTunnel(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	own, _ := c.connect()
	await.Until(t, "the agent is connected", func() bool { return own.Status().Phase == tunnel.Connected })
	await.Until(t, "it is online", func() bool { return p.state(c.id.AgentID) == announce.StateOnline })
	changed := own.Changed()

	other, _ := c.connect(in("another-cluster"))
	await.Until(t, "the copy is refused", func() bool { return other.Status().Phase == tunnel.Refused })
	assert.Contains(t, other.Status().LastError, "as a copy")
	select {
	case <-changed:
		t.Fatal("the agent's tunnel was disturbed")
	default:
	}
	require.Len(t, p.clonesOf(c.id.AgentID), 1)
	assert.Equal(t, announce.StateOnline, p.state(c.id.AgentID))

	silent, _ := c.connect(in(""))
	await.Until(t, "one that does not say where it is is refused", func() bool { return silent.Status().LastError != "" })
	assert.NotEqual(t, tunnel.Refused, silent.Status().Phase, "it tries again: the agent may learn it")
	select {
	case <-changed:
		t.Fatal("the agent's tunnel was disturbed")
	default:
	}
}

// TestClone_ReportedByHeartbeats: two processes of one name send heartbeats in turn.
func TestClone_ReportedByHeartbeats(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	tickets := map[string]string{}
	for range 3 {
		for _, process := range []string{"one", "two"} {
			beat := c.heartbeat()
			beat.Instance, beat.Process, beat.Ticket = "vm-1", process, tickets[process]
			answer, err := c.client.Heartbeat(t.Context(), beat)
			require.NoError(t, err, "which is the original cannot be told")
			tickets[process] = answer.Ticket
		}
	}
	clones := p.clonesOf(c.id.AgentID)
	require.Len(t, clones, 1)
	assert.Equal(t, []string{"", "vm-1", "127.0.0.1"}, []string{clones[0].ClusterUID, clones[0].Instance, clones[0].Address})
	announced := 0
	for _, e := range p.queued() {
		if e.Type == announce.AgentCloned {
			announced++
		}
	}
	assert.Equal(t, 1, announced)
}
