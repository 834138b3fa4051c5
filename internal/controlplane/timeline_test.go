package controlplane

import (
	"context"
	"crypto/tls"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/directory"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/outbox"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/server"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// happened puts events of an App into an agent's timeline, as if the broker had
// brought them.
func (p *plane) happened(agentID, app string, kinds ...announce.Type) {
	p.t.Helper()
	for _, kind := range kinds {
		var n uint64
		require.NoError(p.t, p.store.Update(p.t.Context(), func(tx *store.Tx) (err error) {
			n, err = tx.NextSequence(p.t.Context(), agentID)
			return err
		}))
		e, err := announce.NewAppEvent(kind, directory.EventSource, agentID, announce.AppEvent{Namespace: "production", Name: app}, n, p.clock.now())
		require.NoError(p.t, err)
		require.NoError(p.t, outbox.Remember(p.t.Context(), p.store, p.webhooks, []announce.Event{e}))
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
	ask := func(id string, q announce.TimelineQuery) (announce.TimelinePage, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		return client.Timeline(ctx, id, q)
	}

	page, err := ask(shop.id.AgentID, announce.TimelineQuery{Limit: 3})
	require.NoError(t, err)
	assert.Equal(t, []announce.Type{announce.AppHealthy, announce.AppFailed, announce.AppHealthy}, typesOf(page.Events))
	require.True(t, page.More)
	page, err = ask(shop.id.AgentID, page.Next(announce.TimelineQuery{Limit: 3}))
	require.NoError(t, err)
	assert.Equal(t, []announce.Type{announce.AppProgressing, announce.AgentRegistered}, typesOf(page.Events))
	assert.False(t, page.More)
	page, err = ask(shop.id.AgentID, announce.TimelineQuery{Namespace: "production", App: "web", OldestFirst: true, Types: []announce.Type{announce.AppProgressing, announce.AppFailed}})
	require.NoError(t, err)
	assert.Equal(t, []announce.Type{announce.AppProgressing, announce.AppFailed}, typesOf(page.Events))
	page, err = ask(shop.id.AgentID, announce.TimelineQuery{Since: p.clock.now().Add(time.Minute)})
	require.NoError(t, err)
	assert.Empty(t, page.Events)

	_, foreign := ask(lab.id.AgentID, announce.TimelineQuery{})
	_, unknown := ask("nobody", announce.TimelineQuery{})
	for _, err := range []error{foreign, unknown} {
		known := &problem.Error{}
		require.ErrorAs(t, err, &known)
		assert.Equal(t, problem.NotFound, known.Code)
		assert.Contains(t, known.Detail, "no agent with that ID, or none that this Runner is granted")
	}
	p.get(p.client(), server.OpenAPIPath, func(resp *http.Response) {
		assert.ElementsMatch(t, []string{"GET " + announce.SnapshotPath, "GET " + announce.AgentPath, "GET " + announce.TimelinePath, "POST /v1/runner/certificate", "GET /v1/version"}, callsOf(t, resp.Body))
	})
	_, err = p.admin.Agents.Revoke(t.Context(), "shop")
	require.NoError(t, err)
	_, err = ask(shop.id.AgentID, announce.TimelineQuery{})
	require.Error(t, err)
	page, err = p.admin.Agents.Timeline(t.Context(), shop.id.AgentID, announce.TimelineQuery{Limit: 10})
	require.NoError(t, err)
	assert.Len(t, page.Events, 5, "the four and the registration")
}
