package controlplane

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/directory"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/outbox"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
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

	narrowed, err := credentials.ParseGrant("env=prod,region=us")
	require.NoError(t, err)
	again, err := p.admin.Runners.Grant(t.Context(), "prod", narrowed, "")
	require.NoError(t, err)
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
		events, err := directory.Addressed(t.Context(), p.store, waiting, p.clock.now())
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
	require.NoError(t, outbox.Remember(t.Context(), p.store, p.webhooks, p.queued()[1:]))
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

// heardRevocation reports whether an agent knows of a revoked Runner. Its heartbeats are half a
// minute apart: a refresh request is what tells it.
func (s *served) heardRevocation() bool { return len(s.heard().RevokedRunners) > 0 }

func TestRefresh_ConnectedAgents(t *testing.T) {
	p := start(t)
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

// TestRefresh_ManyAgents: there are more agents than are refreshed at a time.
func TestRefresh_ManyAgents(t *testing.T) {
	const atATime = 4
	p := start(t, func(c *Config) { c.Limits.Refreshes = atATime })
	p.issue("ci", "")
	var agents []*served
	for i := range atATime + 2 {
		agents = append(agents, p.registered(fmt.Sprintf("agent-%d", i)).serve())
	}
	require.NoError(t, p.admin.Runners.Revoke(t.Context(), "ci"))
	await.Until(t, "all have a refresh request", func() bool {
		return !slices.ContainsFunc(agents, func(s *served) bool { return !s.heardRevocation() })
	})
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
