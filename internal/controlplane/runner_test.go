package controlplane

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/castore"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/server"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

func (p *plane) labelled(name string, labels map[string]string) *cluster {
	p.t.Helper()
	c := p.cluster(name)
	require.NoError(p.t, c.register(p.token(func(o *administration.TokenOptions) { o.Labels = labels })))
	return c
}

func (p *plane) issue(name, agents string) credentials.Credentials {
	p.t.Helper()
	grant, err := credentials.ParseGrant(agents)
	require.NoError(p.t, err)
	credentials, err := p.admin.Runners.Issue(p.t.Context(), administration.RunnerOptions{Name: name, TTL: time.Hour, Agents: grant, Replace: true})
	require.NoError(p.t, err)
	return credentials
}

// sees lists the agents that the control plane lists to the holder of credentials.
func (p *plane) sees(c credentials.Credentials) (names []string, err error) {
	p.t.Helper()
	agents, err := p.snapshotClient(c).Agents(p.t.Context())
	for _, a := range agents {
		names = append(names, a.Name)
	}
	slices.Sort(names)
	return names, err
}

func TestGrant_LimitsSnapshot(t *testing.T) {
	p := start(t)
	p.labelled("shop", map[string]string{"env": "prod", "region": "eu"})
	p.labelled("lab", map[string]string{"env": "test"})
	sees := func(c credentials.Credentials, want ...string) {
		t.Helper()
		names, err := p.sees(c)
		require.NoError(t, err)
		assert.Equal(t, want, names)
	}
	sees(p.issue("all", ""), "lab", "shop")
	prod := p.issue("prod", "env=prod,region in (eu,us)")
	sees(prod, "shop")
	_, err := p.admin.Agents.Label(t.Context(), "lab", map[string]string{"env": "prod", "region": "us"}, nil)
	require.NoError(t, err)
	sees(prod, "lab", "shop")
	again := p.issue("prod", "env=prod,region=us")
	_, err = p.sees(prod)
	requireProblem(t, err, controlapi.CodeCertificateUnknown, "newer certificate")
	sees(again, "lab")
}

func TestGrant_LimitsAnnouncements(t *testing.T) {
	p := start(t)
	for name, agents := range map[string]string{"all": "", "prod": "env=prod", "test": "env=test", "gone": ""} {
		p.issue(name, agents)
	}
	require.NoError(t, p.admin.Runners.Revoke(t.Context(), "gone"))
	p.labelled("shop", map[string]string{"env": "prod"})
	_, err := p.admin.Agents.Label(t.Context(), "shop", map[string]string{"env": "test"}, nil)
	require.NoError(t, err)
	_, err = p.admin.Agents.Label(t.Context(), "shop", map[string]string{"env": "test"}, []string{"none"})
	require.NoError(t, err, "nothing changed: nothing is announced")
	addressed := func() (lines []string) {
		t.Helper()
		waiting, err := p.store.Waiting(t.Context(), 0, 10)
		require.NoError(t, err)
		events, err := discovery.Addressed(t.Context(), p.store, waiting, p.clock.now())
		require.NoError(t, err)
		for _, e := range events {
			slices.Sort(e.Runners)
			lines = append(lines, string(e.Type)+" to "+strings.Join(e.Runners, ","))
		}
		return lines
	}
	assert.Equal(t, []string{
		"agent.registered to all,prod",
		"agent.removed to prod", // the others still see it
		"agent.updated to all,test",
	}, addressed())
	detail, err := p.admin.Agents.Get(t.Context(), "shop", 10)
	require.NoError(t, err)
	assert.Equal(t, []announce.Type{announce.AgentRegistered, announce.AgentUpdated}, typesOf(detail.Events), "it was not removed")

	_, err = p.admin.Agents.Revoke(t.Context(), "shop")
	require.NoError(t, err)
	assert.Equal(t, "agent.removed to all,test", addressed()[3], "removed for good")
}

func TestRunnerCreate_Limit(t *testing.T) {
	p := start(t)
	require.NoError(t, p.store.Update(t.Context(), func(tx *store.Tx) error {
		for i := range administration.MaxRunners {
			if err := tx.PutRunner(t.Context(), store.Runner{Name: string(rune('a'+i%26)) + time.Duration(i).String(), Serial: "s"}); err != nil {
				return err
			}
		}
		return nil
	}))
	_, err := p.admin.Runners.Create(t.Context(), "one-more", time.Hour, false)
	require.ErrorContains(t, err, "the most there may be")
}

// heardRevocation reports whether an agent knows of a revoked Runner. Its heartbeats are half a
// minute apart: a refresh request is what tells it.
func (s *served) heardRevocation() bool { return len(s.heard().RevokedRunners) > 0 }

// TestRefresh_ConnectedAgents: there are more agents than are refreshed at a time.
func TestRefresh_ConnectedAgents(t *testing.T) {
	p := start(t, func(c *Config) { c.Limits.Refreshes = 1 })
	p.issue("ci", "")
	shop, lab := p.registered("shop").serve(), p.registered("lab").serve()
	require.NoError(t, p.admin.Runners.Revoke(t.Context(), "ci"))
	await.Until(t, "both have a refresh request", func() bool { return shop.heardRevocation() && lab.heardRevocation() })
	_, err := p.admin.Agents.Label(t.Context(), "shop", map[string]string{"env": "prod"}, nil)
	require.NoError(t, err)
	await.Until(t, "the agent knows its labels", func() bool { return shop.heard().Labels["env"] == "prod" })
	news, err := p.store.RefreshesAfter(t.Context(), 0)
	require.NoError(t, err)
	assert.Equal(t, shop.id.AgentID, news[len(news)-1].AgentID, "no other agent is told of its labels")
}

// runnerFor makes a Runner whose certificates are valid for ttl.
func (p *plane) runnerFor(name string, ttl time.Duration) string {
	p.t.Helper()
	credentials, err := p.admin.Runners.Issue(p.t.Context(), administration.RunnerOptions{Name: name, TTL: ttl})
	require.NoError(p.t, err)
	file := filepath.Join(p.t.TempDir(), name+".json")
	require.NoError(p.t, credentials.Write(file))
	return file
}

func leafIn(t *testing.T, file string) *x509.Certificate {
	t.Helper()
	credentials, err := credentials.Load(file)
	require.NoError(t, err)
	cert, err := credentials.TLSCertificate()
	require.NoError(t, err)
	return cert.Leaf
}

// TestRunnerRenewal_RevokedMeanwhile: what was signed meanwhile is not handed out.
func TestRunnerRenewal_RevokedMeanwhile(t *testing.T) {
	p := start(t)
	file := p.runnerFor("ci", administration.DefaultRunnerTTL)
	known, err := p.store.Runner(t.Context(), "ci")
	require.NoError(t, err)
	issued, err := p.ca.Renew(leafIn(t, file), known.TTL, castore.ReasonRenewal)
	require.NoError(t, err)
	require.NoError(t, p.admin.Runners.Revoke(t.Context(), "ci"))
	err = p.store.Update(t.Context(), func(tx *store.Tx) error { return p.authn.KeepRenewed(t.Context(), tx, known, issued) })
	require.ErrorContains(t, err, "was changed at this moment")
}

// TestAgentLookup_ByNameOrID: an agent that the Runner is not granted gets the answer of an unknown
// one.
func TestAgentLookup_ByNameOrID(t *testing.T) {
	p := start(t)
	shop := p.labelled("shop", map[string]string{"env": "prod"})
	lab := p.labelled("shop-lab", map[string]string{"env": "test"})
	p.labelled("bank", map[string]string{"env": "prod"})
	client := p.snapshotClient(p.issue("prod", "env=prod"))
	unknown := func(nameOrID string) *problem.Error {
		t.Helper()
		_, err := client.Agent(t.Context(), nameOrID)
		known := &problem.Error{}
		require.ErrorAs(t, err, &known)
		require.Equal(t, problem.NotFound, known.Code)
		known.RequestID = ""
		return known
	}

	listed, err := client.Agents(t.Context())
	require.NoError(t, err)
	for _, want := range listed {
		for _, by := range []string{want.Name, want.ID} {
			got, err := client.Agent(t.Context(), by)
			require.NoError(t, err)
			assert.Equal(t, want, got, "as the list has it")
		}
	}
	require.Len(t, listed, 2)

	assert.Equal(t, `did you mean "shop"? The most similar names are: shop, bank`, unknown("shpo").Fix)
	assert.Equal(t, "use one of: shop, bank", unknown("shop-lap").Fix)
	assert.Equal(t, unknown("shop-lap"), unknown("shop-lab"))
	assert.Equal(t, "list the agents with GET /v1/agents", unknown(strings.Repeat("x", 5000)).Fix)
	assert.Equal(t, unknown("0123456789abcdef").Detail, unknown(lab.id.AgentID).Detail)
	assert.NotContains(t, unknown(lab.id.AgentID).Fix, "lab")
	for _, odd := range []string{"", ".", "..", "../..", "shop/timeline", "shop?x", "%2e%2e"} {
		unknown(odd)
	}

	_, err = p.admin.Agents.Revoke(t.Context(), "shop")
	require.NoError(t, err)
	unknown("shop")
	unknown(shop.id.AgentID)
	client = p.snapshotClient(p.issue("nothing", "env=none"))
	assert.Contains(t, unknown("bank").Fix, "is granted no agent")
}

// happened announces events of an App of an agent.
func (p *plane) happened(agentID, app string, kinds ...announce.Type) {
	p.t.Helper()
	for _, kind := range kinds {
		require.NoError(p.t, p.store.Update(p.t.Context(), func(tx *store.Tx) error {
			return discovery.Announce(p.t.Context(), tx, agentID, p.clock.now(), func(source string, n uint64) (announce.Event, error) {
				return announce.NewAppEvent(kind, source, agentID, announce.AppEvent{Namespace: "production", Name: app}, n, p.clock.now())
			})
		}))
	}
}

// certificate is a Runner's client certificate.
func (p *plane) certificate(c credentials.Credentials) tls.Certificate {
	p.t.Helper()
	cert, err := c.TLSCertificate()
	require.NoError(p.t, err)
	return cert
}

func (p *plane) snapshotClient(c credentials.Credentials) *announce.SnapshotClient {
	p.t.Helper()
	return &announce.SnapshotClient{BaseURL: p.Advertised().API, HTTPClient: p.client(p.certificate(c))}
}

// TestTimeline_Pages: Runners read the timelines of the agents that they are granted, and of no
// others.
func TestTimeline_Pages(t *testing.T) {
	p := start(t)
	shop := p.labelled("shop", map[string]string{"env": "prod"})
	lab := p.labelled("lab", map[string]string{"env": "test"})
	p.happened(shop.id.AgentID, "web", announce.AppProgressing, announce.AppHealthy, announce.AppFailed)
	p.happened(shop.id.AgentID, "db", announce.AppHealthy)
	p.happened(lab.id.AgentID, "web", announce.AppHealthy)
	client := p.snapshotClient(p.issue("prod", "env=prod"))

	page, err := client.Timeline(t.Context(), shop.id.AgentID, announce.TimelineQuery{Limit: 3})
	require.NoError(t, err)
	assert.Equal(t, []announce.Type{announce.AppHealthy, announce.AppFailed, announce.AppHealthy}, typesOf(page.Events))
	require.True(t, page.More)
	page, err = client.Timeline(t.Context(), shop.id.AgentID, announce.TimelineQuery{
		Namespace: "production", App: "web", OldestFirst: true, Types: []announce.Type{announce.AppProgressing, announce.AppFailed},
	})
	require.NoError(t, err)
	assert.Equal(t, []announce.Type{announce.AppProgressing, announce.AppFailed}, typesOf(page.Events))

	_, foreign := client.Timeline(t.Context(), lab.id.AgentID, announce.TimelineQuery{})
	_, unknown := client.Timeline(t.Context(), "nobody", announce.TimelineQuery{})
	for _, err := range []error{foreign, unknown} {
		known := &problem.Error{}
		require.ErrorAs(t, err, &known)
		assert.Equal(t, problem.NotFound, known.Code)
		assert.Contains(t, known.Detail, "no agent with that ID, or none that this Runner is granted")
	}
	document := p.call(p.client(), http.MethodGet, server.OpenAPIPath, "").Body
	assert.ElementsMatch(t, []string{
		"GET " + announce.SnapshotPath, "GET " + announce.AgentPath, "GET " + announce.TimelinePath, "POST /v1/runner/certificate", "POST /v1/runner/exchange", "GET /v1/version",
		"GET " + announce.SourceWebhookPath, "PUT " + announce.SourceWebhookPath, "DELETE " + announce.SourceWebhookPath,
	}, callsOf(t, document))
	_, err = p.admin.Agents.Revoke(t.Context(), "shop")
	require.NoError(t, err)
	_, err = client.Timeline(t.Context(), shop.id.AgentID, announce.TimelineQuery{})
	require.Error(t, err)
}
