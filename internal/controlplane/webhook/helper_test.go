package webhook

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
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/tlsfiles"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/logbook"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/storetest"
	"github.com/pipeops/pipeops-vm-agent/test/testmain"
)

// receiver is a real HTTPS server of somebody else's, who verifies what comes.
type receiver struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	secret  string
	got     []message // what was taken
	calls   int
	answers func(call int, m message) int // nil takes everything
	now     func() time.Time              // nil is the real clock
}

type message struct {
	id, agent string
	sequence  uint64
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{t: t, secret: NewSecret()}
	r.Server = httptest.NewTLSServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answer(with func(call int, m message) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = with
}

func (r *receiver) clock() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now == nil {
		return time.Now()
	}
	return r.now()
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // we were stopped in the middle
	}
	if !assert.NoError(r.t, verify(r.secret, req.Header, body, r.clock())) {
		return
	}
	var e struct{ ID, Agentid, Sequence, Specversion string }
	assert.NoError(r.t, json.Unmarshal(body, &e))
	assert.Equal(r.t, "application/cloudevents+json", req.Header.Get("Content-Type"))
	assert.Equal(r.t, req.Header.Get("webhook-id"), e.ID)
	m := message{id: e.ID, agent: e.Agentid}
	m.sequence, _ = strconv.ParseUint(e.Sequence, 10, 64)
	r.mu.Lock()
	r.calls++
	call, answers := r.calls, r.answers
	r.mu.Unlock()
	status := http.StatusNoContent
	if answers != nil {
		status = answers(call, m)
	}
	if status < 300 {
		r.mu.Lock()
		r.got = append(r.got, m)
		r.mu.Unlock()
	}
	w.WriteHeader(status)
}

// taken are the distinct messages in the order in which they came.
func (r *receiver) taken() []message {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []message
	for _, m := range r.got {
		if !slices.Contains(list, m) {
			list = append(list, m)
		}
	}
	return list
}

func (r *receiver) called() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls
}

// verify is a receiver's side of Standard Webhooks, written from its text and not
// from ours.
func verify(secret string, h http.Header, body []byte, now time.Time) error {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(h.Get("webhook-timestamp"), 10, 64)
	if err != nil {
		return err
	}
	if age := now.Sub(time.Unix(seconds, 0)).Abs(); age > 5*time.Minute {
		return fmt.Errorf("is %s old", age)
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%d.%s", h.Get("webhook-id"), seconds, body)
	want := mac.Sum(nil)
	for signature := range strings.FieldsSeq(h.Get("webhook-signature")) {
		version, text, _ := strings.Cut(signature, ",")
		if got, err := base64.StdEncoding.DecodeString(text); version == "v1" && err == nil && hmac.Equal(got, want) {
			return nil
		}
	}
	return fmt.Errorf("no signature of %q is ours", h.Get("webhook-signature"))
}

// world is a store with agents, and a dispatcher of which the retries are short.
type world struct {
	t      *testing.T
	store  *store.Store
	roots  *x509.CertPool
	log    *logbook.Book
	offset atomic.Int64

	callTimeout time.Duration
	most        int // that may wait for one webhook
}

// databases are those of the package's tests on PostgreSQL.
var databases postgres.Shared

func TestMain(m *testing.M) { os.Exit(testmain.Wrap(m, databases.Stop).Run()) }

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, store: storetest.Open(t, &databases, postgres.Chosen(t)), roots: x509.NewCertPool(), log: &logbook.Book{}, most: MaxPending}
	for _, id := range []string{"a1", "a2", "a3"} {
		require.NoError(t, w.store.InsertAgent(t.Context(), store.Agent{ID: id, Name: id, ClusterUID: id, State: announce.StateOnline, Labels: map[string]string{"name": id}}))
	}
	return w
}

func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.offset.Load())) }

// hook makes a webhook for a receiver.
func (w *world) hook(name string, r *receiver, change ...func(*store.Webhook)) store.Webhook {
	w.t.Helper()
	w.roots.AddCert(r.Certificate())
	r.mu.Lock()
	r.now = w.now
	r.mu.Unlock()
	hook := store.Webhook{Name: name, URL: r.URL + "/hook?key=in-the-url", AllowPrivate: true, Secret: r.secret, CreatedAt: time.Now()}
	for _, c := range change {
		c(&hook)
	}
	require.NoError(w.t, w.store.PutWebhook(w.t.Context(), hook))
	return hook
}

func (w *world) dispatcher() *Dispatcher {
	d := NewDispatcher(w.store, Options{TLS: tlsfiles.Fixed(w.roots), UserAgent: "test", Now: w.now, callTimeout: w.callTimeout}, zerolog.New(w.log))
	d.firstRetry = 10 * time.Millisecond
	return d
}

func (w *world) run(d *Dispatcher) (stop func()) {
	return await.Background(w.t, "the dispatcher", d.Run)
}

// say queues events of an App of an agent.
func (w *world) say(agentID string, from, to uint64) {
	w.t.Helper()
	require.NoError(w.t, w.store.Update(w.t.Context(), func(tx *store.Tx) error {
		for n := from; n <= to; n++ {
			e, err := announce.NewAppEvent(announce.AppFailed, "/controlplane", agentID, announce.AppEvent{Namespace: "n", Name: "web"}, n, time.Now())
			if err != nil {
				return err
			}
			if err := queueUpTo(w.t.Context(), tx, e, w.now(), w.most); err != nil {
				return err
			}
		}
		return nil
	}))
}

func (w *world) deliveries(hook string, state store.DeliveryState) []store.Delivery {
	list, err := w.store.Deliveries(w.t.Context(), hook, state, 10_000)
	require.NoError(w.t, err)
	return list
}
