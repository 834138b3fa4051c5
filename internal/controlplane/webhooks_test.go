package controlplane

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/webhook"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// pager is a receiver of webhooks, over real TLS. It verifies by itself what comes.
type pager struct {
	*httptest.Server
	t      *testing.T
	secret atomic.Value
	status atomic.Int64

	mu  sync.Mutex
	got []string // AGENT SEQUENCE TYPE of what it has taken, each once
	ids map[string]bool
}

func newPager(t *testing.T) *pager {
	t.Helper()
	r := &pager{t: t, ids: map[string]bool{}}
	r.status.Store(http.StatusOK)
	r.secret.Store("")
	r.Server = httptest.NewTLSServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *pager) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the control plane was stopped in the middle
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(r.secret.Load().(string), "whsec_"))
	assert.NoError(r.t, err)
	id, h := req.Header.Get("webhook-id"), hmac.New(sha256.New, key)
	fmt.Fprintf(h, "%s.%s.%s", id, req.Header.Get("webhook-timestamp"), body)
	assert.Contains(r.t, strings.Fields(req.Header.Get("webhook-signature")), "v1,"+base64.StdEncoding.EncodeToString(h.Sum(nil)))
	status := int(r.status.Load())
	if status == http.StatusOK {
		var e struct{ AgentID, Sequence, Type string }
		assert.NoError(r.t, json.Unmarshal(body, &e))
		r.mu.Lock()
		if !r.ids[id] {
			r.got = append(r.got, e.AgentID+" "+e.Sequence+" "+e.Type)
		}
		r.ids[id] = true
		r.mu.Unlock()
	}
	w.WriteHeader(status)
}

func (r *pager) taken() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.got...)
}

func (r *pager) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(r.Certificate())
	return pool
}

// hook makes a webhook for it.
func (r *pager) hook(p *plane, types ...string) store.Webhook {
	r.t.Helper()
	hook, err := p.admin.Webhooks.Create(r.t.Context(), operators.WebhookOptions{Name: "pager", URL: r.URL, Types: types, AllowPrivate: true})
	require.NoError(r.t, err)
	r.secret.Store(hook.Secret)
	return hook
}

func TestWebhook_Lifecycle(t *testing.T) {
	t.Parallel()
	r := newPager(t)
	p := start(t, func(c *Config) { c.WebhookRoots = r.roots() })
	hook := r.hook(p, "app.failed")
	list, err := p.admin.Webhooks.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 1)
	shown, err := json.Marshal(list)
	require.NoError(t, err)
	for _, text := range []string{fmt.Sprintf("%+v", list), string(shown)} {
		assert.NotContains(t, text, strings.TrimPrefix(hook.Secret, "whsec_"), "a secret is shown once")
	}
	rotated, err := p.admin.Webhooks.Rotate(t.Context(), "pager")
	require.NoError(t, err)
	for i, secret := range []string{hook.Secret, rotated.Secret, rotated.Secret} { // both are good for a day
		r.secret.Store(secret)
		result, err := p.admin.Webhooks.Test(t.Context(), "pager", webhook.Options{Roots: r.roots()})
		require.NoError(t, err)
		require.NoError(t, result.Err)
		assert.Len(t, r.taken(), i+1)
		p.clock.forward(12 * time.Hour)
	}

	shop := p.registered("shop")
	r.status.Store(http.StatusGone)
	grant, err := credentials.ParseGrant("own=nobody")
	require.NoError(t, err)
	_, err = p.admin.Webhooks.Create(t.Context(), operators.WebhookOptions{Name: "nobody", URL: r.URL, Agents: grant, AllowPrivate: true})
	require.NoError(t, err)
	p.webhooks.Look()
	p.happened(shop.id.AgentID, "web", announce.AppHealthy, announce.AppFailed)
	await.Until(t, "it is given up", func() bool {
		gone, err := p.admin.Webhooks.Deliveries(t.Context(), "pager", store.DeliveryGivenUp, 10)
		return err == nil && len(gone) == 1
	})
	none, err := p.admin.Webhooks.Deliveries(t.Context(), "nobody", "", 10)
	require.NoError(t, err)
	assert.Empty(t, none)
}

// TestWebhook_EnableAfterGone: it does not get the events that came meanwhile.
func TestWebhook_EnableAfterGone(t *testing.T) {
	t.Parallel()
	r := newPager(t)
	p := start(t, func(c *Config) { c.WebhookRoots, c.MetricsListen = r.roots(), "127.0.0.1:0" })
	r.hook(p)
	shop := p.registered("shop")
	r.status.Store(http.StatusGone)
	p.happened(shop.id.AgentID, "web", announce.AppFailed)
	await.Until(t, "it is off", func() bool {
		list, err := p.admin.Webhooks.List(t.Context())
		return err == nil && !list[0].Enabled() && list[0].Counts[store.DeliveryGivenUp] == 1
	})
	p.happened(shop.id.AgentID, "web", announce.AppHealthy)
	r.status.Store(http.StatusOK)
	require.NoError(t, p.admin.Webhooks.Enable(t.Context(), "pager"))
	p.happened(shop.id.AgentID, "web", announce.AppFailed)
	await.Until(t, "it is called again", func() bool { return len(r.taken()) == 1 })
	assert.Contains(t, r.taken()[0], " 4 app.failed")
	at, _ := p.ObservedAt()
	for _, result := range []string{"delivered", "given_up"} {
		await.Until(t, "it is counted", func() bool {
			return sample(t, scrape(t, at), `pipeops_controlplane_webhook_attempts_total{result="`+result+`"}`) == "1"
		})
	}
	await.Until(t, "none waits", func() bool { return sample(t, scrape(t, at), "pipeops_controlplane_webhook_events") == "0" })
}
