package webhook

import (
	"crypto/x509"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/tlsfiles"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// requireInOrder: of each agent all came, by their sequence.
func requireInOrder(t *testing.T, got []message, agents int, each uint64) {
	t.Helper()
	last := map[string]uint64{}
	for _, m := range got {
		require.Equal(t, last[m.agent]+1, m.sequence, "of agent %s", m.agent)
		last[m.agent] = m.sequence
	}
	require.Len(t, last, agents)
	for agent, n := range last {
		require.Equal(t, each, n, agent)
	}
}

// TestWebhook_SignedInOrder fails a third of the calls, in all ways.
func TestWebhook_SignedInOrder(t *testing.T) {
	w, r := newWorld(t), newReceiver(t)
	w.hook("pager", r)
	r.answer(func(_ int, m message) int {
		switch rand.N(6) {
		case 0:
			return http.StatusInternalServerError
		case 1: // taken, and the answer is lost
			r.mu.Lock()
			r.got = append(r.got, m)
			r.mu.Unlock()
			panic(http.ErrAbortHandler)
		}
		return http.StatusOK
	})
	d := w.dispatcher()
	w.run(d)
	for _, agent := range []string{"a1", "a2", "a3"} {
		w.say(agent, 1, 30)
	}
	await.Until(t, "all are delivered", func() bool { return len(w.deliveries("pager", store.DeliveryDelivered)) == 90 })
	requireInOrder(t, r.taken(), 3, 30)
	assert.Greater(t, r.called(), 90)
	for _, delivery := range w.deliveries("pager", "") {
		assert.Empty(t, delivery.Body, "it is not kept longer than needed")
	}
}

// TestWebhook_SurvivesOutage stops the receiver, then the dispatcher. Another process delivers the
// rest.
func TestWebhook_SurvivesOutage(t *testing.T) {
	w, r := newWorld(t), newReceiver(t)
	w.hook("pager", r)
	d := w.dispatcher()
	stop := w.run(d)
	w.say("a1", 1, 2)
	await.Until(t, "the first ones", func() bool { return len(r.taken()) == 2 })
	address := r.Listener.Addr().String()
	require.NoError(t, r.Listener.Close())
	r.CloseClientConnections()
	w.say("a1", 3, 10)
	await.Until(t, "it is tried", func() bool {
		list := w.deliveries("pager", store.DeliveryPending)
		return len(list) == 8 && list[7].Attempts > 1
	})
	stop()
	assert.Contains(t, w.deliveries("pager", store.DeliveryPending)[7].Error, "connection refused")

	back := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
	require.NoError(t, err)
	back.TLSConfig = r.TLS.Clone()
	go func() { _ = back.ServeTLS(ln, "", "") }()
	t.Cleanup(func() { _ = back.Close() })
	w.run(w.dispatcher())
	await.Until(t, "the rest", func() bool { return len(r.taken()) == 10 })
	requireInOrder(t, r.taken(), 1, 10)
}

// TestWebhook_SlowReceiver delays neither other receivers, nor other agents' events, nor the end.
func TestWebhook_SlowReceiver(t *testing.T) {
	w, slow, quick := newWorld(t), newReceiver(t), newReceiver(t)
	release := make(chan struct{})
	w.callTimeout = time.Hour
	t.Cleanup(func() { close(release) })
	slow.answer(func(_ int, m message) int {
		if m.agent == "a1" {
			<-release
		}
		return http.StatusOK
	})
	w.hook("slow", slow)
	w.hook("quick", quick)
	d := w.dispatcher()
	stop := w.run(d)
	w.say("a1", 1, 200)
	w.say("a2", 1, 5)
	await.Until(t, "the quick one has all", func() bool { return len(quick.taken()) == 205 })
	await.Until(t, "the slow one has the other agent's", func() bool { return len(slow.taken()) == 5 })
	assert.Equal(t, 6, slow.called(), "one call at a time for an agent")
	stop()
}

func TestWebhook_QueueLimit(t *testing.T) {
	w, r := newWorld(t), newReceiver(t)
	w.hook("pager", r)
	d := w.dispatcher()
	w.most = 5
	w.say("a1", 1, 8)
	given := w.deliveries("pager", store.DeliveryGivenUp)
	require.Len(t, given, 3)
	assert.Equal(t, []any{uint64(3), "too many were waiting", ""}, []any{given[0].Sequence, given[0].Error, given[0].Body})
	w.run(d)
	await.Until(t, "the newest are sent", func() bool { return len(r.taken()) == 5 })
	assert.Equal(t, uint64(4), r.taken()[0].sequence)
}

func TestWebhook_GivesUp(t *testing.T) {
	w, r := newWorld(t), newReceiver(t)
	w.hook("pager", r)
	r.answer(func(_ int, m message) int {
		if m.sequence == 1 {
			return http.StatusBadRequest
		}
		return http.StatusOK
	})
	d := w.dispatcher()
	d.firstRetry = time.Hour
	w.run(d)
	w.say("a1", 1, 2)
	await.Until(t, "it is tried once", func() bool { return r.called() == 1 })
	await.Until(t, "and is to be tried again", func() bool {
		list := w.deliveries("pager", store.DeliveryPending)
		return len(list) == 2 && list[1].NextAt.After(w.now().Add(20*time.Minute)) && list[1].Attempts == 1
	})
	w.offset.Store(int64(giveUpAfter))
	d.Look()
	await.Until(t, "the next one is sent", func() bool { return len(r.taken()) == 1 })
	given := w.deliveries("pager", store.DeliveryGivenUp)
	require.Len(t, given, 1)
	assert.Equal(t, []any{2, 400, "it answered 400 Bad Request"}, []any{given[0].Attempts, given[0].Status, given[0].Error})
}

func TestWebhook_Backoff(t *testing.T) {
	w := newWorld(t)
	d := NewDispatcher(w.store, Options{}, w.dispatcher().log)
	q := &queue{Dispatcher: d}
	for attempts, most := range map[int]time.Duration{1: 5 * time.Second, 2: 10 * time.Second, 5: 80 * time.Second, 11: time.Hour, 100: time.Hour} {
		for range 20 {
			wait := q.backoff(attempts)
			assert.LessOrEqual(t, wait, most)
			assert.GreaterOrEqual(t, wait, most/2)
		}
	}
}

func TestWebhook_DisabledBy410(t *testing.T) {
	w, r := newWorld(t), newReceiver(t)
	w.hook("pager", r)
	r.answer(func(int, message) int { return http.StatusGone })
	d := w.dispatcher()
	w.run(d)
	w.say("a1", 1, 3)
	await.Until(t, "it is off", func() bool {
		hook, err := w.store.Webhook(t.Context(), "pager")
		return err == nil && !hook.Enabled() && strings.Contains(hook.Reason, "410")
	})
	assert.Len(t, w.deliveries("pager", store.DeliveryGivenUp), 3)
	w.say("a1", 4, 4)
	assert.Len(t, w.deliveries("pager", ""), 3, "nothing is queued any more")
	assert.Equal(t, 1, r.called())
}

// TestWebhook_ObeysRetryAfter uses a second receiver to see that the dispatcher has looked at later
// events.
func TestWebhook_ObeysRetryAfter(t *testing.T) {
	w, r, other := newWorld(t), newReceiver(t), newReceiver(t)
	w.hook("pager", r)
	w.hook("other", other)
	var early atomic.Int64
	r.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		if r.called() == 0 {
			rw.Header().Set("Retry-After", "3600")
			r.answer(func(int, message) int { return http.StatusServiceUnavailable })
		} else if w.offset.Load() == 0 {
			early.Add(1)
		}
		r.ServeHTTP(rw, req)
	})
	d := w.dispatcher()
	w.run(d)
	w.say("a1", 1, 1)
	await.Until(t, "it has asked for quiet", func() bool {
		list := w.deliveries("pager", store.DeliveryPending)
		return len(list) == 1 && list[0].NextAt.After(w.now().Add(30*time.Minute))
	})
	for n := range uint64(3) {
		w.say("a2", n+1, n+1)
		await.Until(t, "the other receiver has it", func() bool { return len(other.taken()) == int(n)+2 })
	}
	r.answer(nil)
	w.offset.Store(int64(61 * time.Minute))
	d.Look()
	await.Until(t, "then it gets both agents'", func() bool { return len(r.taken()) == 4 })
	assert.Zero(t, early.Load(), "calls in the time of quiet")
}

func TestWebhook_Filters(t *testing.T) {
	w, r := newWorld(t), newReceiver(t)
	w.hook("failed", r, func(h *store.Webhook) { h.Types = []string{"app.failed"} })
	w.hook("apps", r, func(h *store.Webhook) { h.Types = []string{"agent.online", "app.*"} })
	w.hook("agents", r, func(h *store.Webhook) { h.Types = []string{"agent.*"} })
	w.hook("a2", r, func(h *store.Webhook) { h.Agents = "name=a2" })
	w.hook("off", r, func(h *store.Webhook) { h.DisabledAt = time.Now() })
	w.say("a1", 1, 1)
	w.say("a2", 1, 1)
	for hook, want := range map[string]int{"failed": 2, "apps": 2, "agents": 0, "a2": 1, "off": 0} {
		assert.Len(t, w.deliveries(hook, ""), want, hook)
	}
}

// TestWebhook_SecretsNotLogged includes secrets in URLs.
func TestWebhook_SecretsNotLogged(t *testing.T) {
	w, r := newWorld(t), newReceiver(t)
	w.hook("pager", r)
	w.hook("nowhere", r, func(h *store.Webhook) { h.URL = "https://127.0.0.1:1/in-the-url" })
	w.hook("unknown", r, func(h *store.Webhook) { h.URL = "https://nobody.invalid/in-the-url" })
	r.answer(func(int, message) int { return http.StatusTeapot })
	d := w.dispatcher()
	w.run(d)
	w.say("a1", 1, 1)
	await.Until(t, "all have failed", func() bool {
		for _, hook := range []string{"pager", "nowhere", "unknown"} {
			if list := w.deliveries(hook, ""); len(list) != 1 || list[0].Attempts == 0 {
				return false
			}
		}
		return true
	})
	said := w.log.String()
	for _, hook := range []string{"pager", "nowhere", "unknown"} {
		said += w.deliveries(hook, "")[0].Error
	}
	assert.Contains(t, said, "418")
	for _, secret := range []string{r.secret, strings.TrimPrefix(r.secret, "whsec_"), "in-the-url"} {
		assert.NotContains(t, said, secret)
	}
}

func TestWebhook_VerifiesReceiver(t *testing.T) {
	w, r := newWorld(t), newReceiver(t)
	hook := w.hook("pager", r)
	s := NewSender(hook, Options{TLS: tlsfiles.Fixed(x509.NewCertPool())})
	defer s.Close()
	require.ErrorContains(t, s.Send(t.Context(), "1", []byte("{}")).Err, "unknown authority")
	assert.Zero(t, r.called())
}
