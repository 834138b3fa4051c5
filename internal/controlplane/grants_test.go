package controlplane

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/directory"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/fleet"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/outbox"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

func (p *plane) labelled(name string, labels map[string]string) *cluster {
	p.t.Helper()
	c := p.cluster(name)
	require.NoError(p.t, c.register(p.token(func(o *operators.TokenOptions) { o.Labels = labels })))
	return c
}

func (p *plane) issue(name, agents string) credentials.Credentials {
	p.t.Helper()
	grant, err := credentials.ParseGrant(agents)
	require.NoError(p.t, err)
	credentials, err := p.admin.Runners.Issue(p.t.Context(), operators.RunnerOptions{Name: name, TTL: time.Hour, Agents: grant, Replace: true})
	require.NoError(p.t, err)
	return credentials
}

// sees lists the agents that the control plane lists to the holder of credentials.
func (p *plane) sees(credentials credentials.Credentials) (status int, names []string) {
	p.t.Helper()
	cert, err := credentials.TLSCertificate()
	require.NoError(p.t, err)
	transport := &http.Transport{TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: p.ca.Pool(), Certificates: []tls.Certificate{cert}}}
	defer transport.CloseIdleConnections()
	p.get(&http.Client{Transport: transport, Timeout: 10 * time.Second}, announce.SnapshotPath, func(resp *http.Response) {
		var list struct{ Agents []announce.Agent }
		require.NoError(p.t, json.NewDecoder(resp.Body).Decode(&list))
		status = resp.StatusCode
		for _, a := range list.Agents {
			names = append(names, a.Name)
		}
	})
	slices.Sort(names)
	return status, names
}

func TestGrant_LimitsSnapshot(t *testing.T) {
	p := start(t)
	p.labelled("shop", map[string]string{"env": "prod", "region": "eu"})
	p.labelled("lab", map[string]string{"env": "test"})
	_, all := p.sees(p.issue("all", ""))
	assert.Equal(t, []string{"lab", "shop"}, all)
	prod := p.issue("prod", "env=prod,region in (eu,us)")
	_, some := p.sees(prod)
	assert.Equal(t, []string{"shop"}, some)

	_, err := p.admin.Agents.Label(t.Context(), "lab", map[string]string{"env": "prod", "region": "us"}, nil)
	require.NoError(t, err)
	_, some = p.sees(prod)
	assert.Equal(t, []string{"lab", "shop"}, some)

	narrowed, err := credentials.ParseGrant("env=prod,region=us")
	require.NoError(t, err)
	again, err := p.admin.Runners.Grant(t.Context(), "prod", narrowed, "")
	require.NoError(t, err)
	status, _ := p.sees(prod)
	assert.Equal(t, http.StatusUnauthorized, status, "the old certificate")
	_, some = p.sees(again)
	assert.Equal(t, []string{"lab"}, some)
	cert, err := again.TLSCertificate()
	require.NoError(t, err)
	assert.WithinDuration(t, p.clock.now().Add(time.Hour), cert.Leaf.NotAfter, time.Minute, "as good for as long")

	require.NoError(t, p.admin.Runners.Revoke(t.Context(), "prod"))
	_, err = p.admin.Runners.Grant(t.Context(), "prod", narrowed, "")
	require.ErrorContains(t, err, "was revoked")
}

func TestGrant_LimitsAnnouncements(t *testing.T) {
	p := start(t)
	p.issue("all", "")
	p.issue("prod", "env=prod")
	p.issue("test", "env=test")
	p.issue("gone", "")
	require.NoError(t, p.admin.Runners.Revoke(t.Context(), "gone"))
	p.labelled("shop", map[string]string{"env": "prod"})
	_, err := p.admin.Agents.Label(t.Context(), "shop", map[string]string{"env": "test"}, nil)
	require.NoError(t, err)
	_, err = p.admin.Agents.Label(t.Context(), "shop", map[string]string{"env": "test"}, []string{"none"})
	require.NoError(t, err, "nothing changed: nothing is announced")
	waiting, err := p.store.Waiting(t.Context(), 0, 10)
	require.NoError(t, err)
	events, err := directory.Addressed(t.Context(), p.store, waiting, p.clock.now())
	require.NoError(t, err)
	require.Len(t, events, 3)
	queued := p.queued()
	for i, want := range []struct {
		kind    announce.Type
		runners []string
	}{
		{announce.AgentRegistered, []string{"all", "prod"}},
		{announce.AgentRemoved, []string{"prod"}}, // whoever sees it still is not told so
		{announce.AgentUpdated, []string{"all", "test"}},
	} {
		slices.Sort(events[i].Runners)
		assert.Equal(t, want.kind, events[i].Type)
		assert.Equal(t, want.runners, events[i].Runners, want.kind)
	}
	require.NoError(t, outbox.Remember(t.Context(), p.store, p.webhooks, []announce.Event{queued[1]}))
	require.NoError(t, outbox.Remember(t.Context(), p.store, p.webhooks, []announce.Event{queued[2]}))
	detail, err := p.admin.Agents.Get(t.Context(), "shop", 10)
	require.NoError(t, err)
	assert.Equal(t, []announce.Type{announce.AgentRegistered, announce.AgentUpdated}, typesOf(detail.Events), "it was not removed")

	agent, err := p.admin.Agents.Revoke(t.Context(), "shop")
	require.NoError(t, err)
	removed, err := announce.NewAgentEvent(announce.AgentRemoved, directory.EventSource, agent, 9, time.Now())
	require.NoError(t, err)
	encoded, err := removed.Encoded()
	require.NoError(t, err)
	events, err = directory.Addressed(t.Context(), p.store, []store.Waiting{{Event: encoded}}, p.clock.now())
	require.NoError(t, err)
	runners := events[0].Runners
	slices.Sort(runners)
	assert.Equal(t, []string{"all", "test"}, runners, "removed for good")
}

func TestRunnerCreate_Limit(t *testing.T) {
	p := start(t)
	require.NoError(t, p.store.Update(t.Context(), func(tx *store.Tx) error {
		for i := range operators.MaxRunners {
			if err := tx.PutRunner(t.Context(), store.Runner{Name: string(rune('a'+i%26)) + time.Duration(i).String(), Serial: "s"}); err != nil {
				return err
			}
		}
		return nil
	}))
	_, err := p.admin.Runners.Create(t.Context(), "one-more", time.Hour, false)
	require.ErrorContains(t, err, "the most there may be")
}

// refreshable serves an agent's end of the tunnel, and counts refreshes.
type refreshable struct {
	*cluster
	refreshes atomic.Int64
}

func (c *cluster) serveRefreshes() *refreshable {
	c.t.Helper()
	n := &refreshable{cluster: c}
	tun, _ := c.connect()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- transport.Serve(ctx, tun.Listener(), transport.ServeConfig{Handler: http.NotFoundHandler(), Log: zerolog.Nop(),
			TLS: transport.TLS(transport.TLSConfig{
				Certificate: func() (*tls.Certificate, error) { return &c.tls.Load().Certificates[0], nil },
				Roots:       func() *x509.CertPool { return c.tls.Load().RootCAs },
				TrustDomain: c.id.TrustDomain, Time: c.p.clock.now,
				Refresh: func(context.Context) error { n.refreshes.Add(1); return c.beat() },
			})})
	}()
	c.t.Cleanup(func() { cancel(); assert.NoError(c.t, await.Receive(c.t, done, "the end of the Runner API")) })
	await.Until(c.t, "the agent is online", func() bool { return c.p.tunnels.own.Connected(c.id.AgentID) })
	return n
}

// refreshed waits for one more refresh after a change.
func (n *refreshable) refreshed(what string, change func()) {
	n.t.Helper()
	before := n.refreshes.Load()
	change()
	await.Until(n.t, what+" sends the agent a refresh request", func() bool { return n.refreshes.Load() > before })
}

func TestRefresh_ConnectedAgents(t *testing.T) {
	p := start(t)
	p.issue("ci", "")
	shop, lab := p.registered("shop").serveRefreshes(), p.registered("lab").serveRefreshes()
	shop.refreshed("a revoked Runner", func() { require.NoError(t, p.admin.Runners.Revoke(t.Context(), "ci")) })
	await.Until(t, "all have a refresh request", func() bool { return lab.refreshes.Load() == 1 })

	shop.refreshed("new labels", func() {
		_, err := p.admin.Agents.Label(t.Context(), "shop", map[string]string{"env": "prod"}, nil)
		require.NoError(t, err)
	})
	assert.EqualValues(t, 1, lab.refreshes.Load(), "it is nobody else's news")
	answer, err := shop.client.Heartbeat(t.Context(), shop.heartbeat())
	require.NoError(t, err)
	assert.Equal(t, "prod", answer.Labels["env"])
	assert.Len(t, answer.RevokedRunners, 1)
}

// TestRefresh_ManyAgents: there are more agents than are refreshed at a time.
func TestRefresh_ManyAgents(t *testing.T) {
	const atATime = 4
	p := start(t, func(c *Config) { c.Limits.Refreshes = atATime })
	p.issue("ci", "")
	agents := make([]*refreshable, atATime+2)
	for i := range agents {
		agents[i] = p.registered(fmt.Sprintf("agent-%d", i)).serveRefreshes()
	}
	require.NoError(t, p.admin.Runners.Revoke(t.Context(), "ci"))
	await.Until(t, "all have a refresh request", func() bool {
		return !slices.ContainsFunc(agents, func(n *refreshable) bool { return n.refreshes.Load() == 0 })
	})
	for _, n := range agents {
		assert.LessOrEqual(t, n.refreshes.Load(), int64(fleet.RefreshTries), "again only where no answer came in time")
	}
}

// TestRegister_OtherLabels: Runners that were granted the former labels hear that the agent was
// removed.
func TestRegister_OtherLabels(t *testing.T) {
	p := start(t)
	p.issue("prod", "env=prod")
	c := p.labelled("shop", map[string]string{"env": "prod"})
	require.NoError(t, c.register(p.token(func(o *operators.TokenOptions) { o.Labels = map[string]string{"env": "test"} })))
	assert.Equal(t, []announce.Type{announce.AgentRegistered, announce.AgentRemoved, announce.AgentUpdated}, typesOf(p.queued()))
	news, err := p.store.RefreshesAfter(t.Context(), 0)
	require.NoError(t, err)
	assert.Equal(t, []store.Refresh{{AgentID: c.id.AgentID, Number: 1}}, news)
}
