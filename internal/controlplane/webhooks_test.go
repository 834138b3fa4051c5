package controlplane

import (
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/tlsfiles"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// pager is a receiver of webhooks, over real TLS.
type pager struct {
	*httptest.Server
	t      *testing.T
	status atomic.Int64

	mu  sync.Mutex
	got []string // AGENT TYPE of what it has taken
}

func (r *pager) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var e struct{ AgentID, Type string }
	assert.NoError(r.t, json.NewDecoder(req.Body).Decode(&e))
	assert.NotEmpty(r.t, req.Header.Get("webhook-signature"))
	status := int(r.status.Load())
	if status == http.StatusOK {
		r.mu.Lock()
		r.got = append(r.got, e.AgentID+" "+strings.TrimPrefix(e.Type, announce.TypePrefix))
		r.mu.Unlock()
	}
	w.WriteHeader(status)
}

func (r *pager) taken() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.got...)
}

// TestWebhook_EnableAfterGone: a receiver that is gone turns its webhook off. Turned on again, it
// does not get the events that came meanwhile.
func TestWebhook_EnableAfterGone(t *testing.T) {
	t.Parallel()
	r := &pager{t: t}
	r.Server = httptest.NewTLSServer(r)
	t.Cleanup(r.Close)
	p := start(t, func(c *Config) {
		roots := x509.NewCertPool()
		roots.AddCert(r.Certificate())
		c.WebhookTLS, c.MetricsListen = tlsfiles.Fixed(roots), "127.0.0.1:0"
	})
	hook, err := p.admin.Webhooks.Create(t.Context(), administration.WebhookOptions{Name: "pager", URL: r.URL, Types: []string{"app.*"}, AllowPrivate: true})
	require.NoError(t, err)
	grant, err := credentials.ParseGrant("own=nobody")
	require.NoError(t, err)
	_, err = p.admin.Webhooks.Create(t.Context(), administration.WebhookOptions{Name: "nobody", URL: r.URL, Agents: grant, AllowPrivate: true})
	require.NoError(t, err)
	shop := p.registered("shop")
	r.status.Store(http.StatusGone)
	p.happened(shop.id.AgentID, "web", announce.AppFailed)
	await.Until(t, "it is off", func() bool {
		list, err := p.admin.Webhooks.List(t.Context())
		return err == nil && !list[1].Enabled() && list[1].Counts[store.DeliveryGivenUp] == 1
	})
	p.happened(shop.id.AgentID, "web", announce.AppHealthy)
	r.status.Store(http.StatusOK)
	require.NoError(t, p.admin.Webhooks.Enable(t.Context(), "pager"))
	p.happened(shop.id.AgentID, "web", announce.AppFailed)
	await.Until(t, "it is called again", func() bool { return len(r.taken()) == 1 })
	assert.Equal(t, shop.id.AgentID+" app.failed", r.taken()[0])
	at, _ := p.ObservedAt()
	for series, want := range map[string]string{`_attempts_total{result="delivered"}`: "1", `_attempts_total{result="given_up"}`: "1", "_events": "0"} {
		await.Until(t, "it is counted", func() bool { return sample(t, scrape(t, at), "pipeops_controlplane_webhook"+series) == want })
	}
	list, err := p.admin.Webhooks.List(t.Context())
	require.NoError(t, err)
	shown, err := json.Marshal(list)
	require.NoError(t, err)
	assert.NotContains(t, fmt.Sprintf("%+v", list)+string(shown), strings.TrimPrefix(hook.Secret, "whsec_"), "a secret is shown once")
	none, err := p.admin.Webhooks.Deliveries(t.Context(), "nobody", "", 10)
	require.NoError(t, err)
	assert.Empty(t, none)
}

// TestConsole_ChangesWebhook makes a webhook for a chat service, changes and tests it. Notices name
// the agent and lead to its page.
func TestConsole_ChangesWebhook(t *testing.T) {
	p := start(t)
	notices, status := make(chan string, 10), atomic.Int64{}
	status.Store(http.StatusOK)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assert.NoError(t, err)
		notices <- r.URL.Path + " " + string(body)
		w.WriteHeader(int(status.Load()))
	}))
	t.Cleanup(service.Close)
	b := p.signedIn(p.operator("alice", administration.RoleOperator))
	form := url.Values{"name": {"team"}, "url": {service.URL + "/one"}, "format": {"slack"}, "types": {"agent.registered", "app.*"}, "http": {"true"}}
	code, body := b.change("/console/webhooks/new", form)
	require.Equal(t, http.StatusOK, code, body)
	c := p.registered("bakery")
	await.Until(t, "the notice", func() bool { return len(notices) > 0 })
	notice := <-notices
	assert.Contains(t, notice, "/one {\"text\":\"*Agent bakery: registered*\\n")
	assert.Contains(t, notice, "/console/agents/"+c.id.AgentID+"|Open in the console")

	_, body = b.get("/console/webhooks/team/edit")
	for _, want := range []string{`value="` + service.URL + `/one"`, "<option selected>slack", `value="app.*" checked`, `value="agent.registered" checked`, `value="alert.firing">`} {
		assert.Contains(t, body, want)
	}
	form.Set("url", "ftp://elsewhere")
	form["types"] = []string{"alert.firing"}
	code, body = b.change("/console/webhooks/team/edit", form)
	assert.Equal(t, http.StatusUnprocessableEntity, code)
	assert.Contains(t, body, `value="alert.firing" checked`, "what was sent is shown again")
	form.Set("url", service.URL+"/two")
	form.Set("format", "teams")
	code, body = b.change("/console/webhooks/team/edit", form)
	require.Equal(t, http.StatusOK, code, body)
	assert.Contains(t, body, "The webhook is changed.")
	assert.Contains(t, body, "<dd>teams</dd>")

	_, body = b.change("/console/webhooks/team/test", nil)
	assert.Contains(t, body, "The receiver took the test event.")
	assert.Contains(t, body, `<span class="mono">webhook.test</span></td>`)
	assert.Contains(t, <-notices, `/two {"attachments":[`)
	status.Store(http.StatusTeapot)
	_, body = b.change("/console/webhooks/team/test", nil)
	assert.Contains(t, body, "The receiver did not take the test event")
	assert.Contains(t, body, "It answered 418 I&#39;m a teapot")
}
