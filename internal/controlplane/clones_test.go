package controlplane

import (
	"bytes"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

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
	body, err := json.Marshal(controlapi.RenewRequest{CSR: csr(c.t, newKey(c.t)), Clock: c.p.clock.now(), OldCertificate: old, Proof: "x"})
	require.NoError(c.t, err)
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.p.Advertised().API+"/v1/agent/renew", bytes.NewReader(body))
	require.NoError(c.t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Pipeops-Cluster", c.uid)
	resp, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: c.tls.Load(), DisableKeepAlives: true}}).Do(req)
	require.NoError(c.t, err)
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return problem.Read(resp)
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
	_, renewed := other.client.Renew(t.Context(), csr(t, newKey(t)))
	_, handed := other.client.Audit(t.Context(), controlapi.AuditRequest{})
	for what, err := range map[string]error{
		"heartbeat": other.beat(), "events": other.sends(nil, appEvent("1", announce.AppFailed)),
		"renew": renewed, "audit": handed, "check": other.client.CheckIdentity(t.Context()),
	} {
		requireProblem(t, err, controlapi.CodeIdentityCloned, "shop", "another-", "AGENT_TOKEN", "pipeops-agent-identity")
		require.NotEmpty(t, what)
	}
	silent := c.copied("")
	_, renewed = silent.client.Renew(t.Context(), csr(t, newKey(t)))
	_, recovered := silent.client.Recover(t.Context(), silent.id.Certificate, silent.key, csr(t, newKey(t)))
	for what, err := range map[string]error{
		"heartbeat": silent.beat(), "renew": renewed, "recover": recovered, "check": silent.client.CheckIdentity(t.Context()),
	} {
		requireProblem(t, err, problem.BadRequest, "does not say in which cluster it is")
		require.NotEmpty(t, what)
	}
	for _, old := range []string{"", "x", c.id.Certificate} {
		requireProblem(t, other.renewWithProof(old), controlapi.CodeIdentityCloned)
	}
	_, proved := other.client.Recover(t.Context(), c.id.Certificate, c.key, csr(t, newKey(t)))
	requireProblem(t, proved, controlapi.CodeIdentityCloned)
	events := p.queued()[before:]
	require.Equal(t, []announce.Type{announce.AgentCloned}, typesOf(events), "it is announced once")
	agent, err := events[0].Agent()
	require.NoError(t, err)
	require.Len(t, agent.Clones, 1)
	clone := agent.Clones[0]
	assert.Equal(t, []string{"another-cluster", "copy-1", "127.0.0.1"}, []string{clone.ClusterUID, clone.Instance, clone.Address})
	require.NoError(t, c.beat(), "the agent itself is not disturbed")
	_, err = c.client.Renew(t.Context(), csr(t, newKey(t)))
	require.NoError(t, err)

	p.clock.forward(2 * time.Minute)
	requireProblem(t, other.beat(), controlapi.CodeIdentityCloned)
	assert.Len(t, p.queued(), before+1, "and not again")
	assert.True(t, p.clonesOf(c.id.AgentID)[0].LastSeen.After(clone.LastSeen))

	t.Run("nor after it was away for long", func(t *testing.T) {
		p.clock.forward(30 * 24 * time.Hour)
		_, err := other.client.Recover(t.Context(), other.id.Certificate, other.key, csr(t, newKey(t)))
		requireProblem(t, err, controlapi.CodeIdentityCloned)
	})
	t.Run("it registers as an agent of its own", func(t *testing.T) {
		fresh := p.cluster("copy")
		fresh.uid = "another-cluster"
		require.NoError(t, fresh.register(p.token()))
		assert.NotEqual(t, c.id.AgentID, fresh.id.AgentID)
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
