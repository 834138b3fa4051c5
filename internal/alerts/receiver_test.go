package alerts_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/alerts"
)

// documented is the payload of Alertmanager's documentation, with values.
const documented = `{
  "version": "4", "groupKey": "{}:{alertname=\"PipeOpsAppFailed\"}", "truncatedAlerts": 0, "status": "firing", "receiver": "pipeops",
  "groupLabels": {"alertname": "PipeOpsAppFailed"}, "commonLabels": {}, "commonAnnotations": {}, "externalURL": "http://alertmanager:9093",
  "alerts": [
    {"status": "firing", "labels": {"alertname": "PipeOpsAppFailed", "severity": "critical", "namespace": "shop", "app": "web"},
     "annotations": {"summary": "The App shop/web\ndoes not serve"}, "startsAt": "2026-01-02T12:00:00.123Z", "endsAt": "0001-01-01T00:00:00Z",
     "generatorURL": "http://prometheus/graph", "fingerprint": "7df1dc9aa9e0c1b8"},
    {"status": "resolved", "labels": {"alertname": "PipeOpsNodeNotReady", "node": "vm-1", "namespace": "Not a name", "app": "web"},
     "annotations": {"description": "vm-1 is not ready"}, "startsAt": "2026-01-02T11:00:00Z", "endsAt": "2026-01-02T11:30:00Z", "fingerprint": "0000000000000001"}
  ]
}`

var noon = time.Date(2026, 1, 2, 12, 1, 0, 0, time.UTC)

// receiver is a Receiver whose control plane is the test.
type receiver struct {
	*alerts.Receiver
	token string
	now   time.Time
	fails error
	sent  []alerts.Alert
	count map[string]int
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{token: filepath.Join(t.TempDir(), "token"), now: noon, count: map[string]int{}}
	require.NoError(t, os.WriteFile(r.token, []byte("s3cret\n"), 0o600))
	r.Receiver = alerts.New(alerts.Config{
		TokenFile: r.token, Now: func() time.Time { return r.now }, Log: zerolog.Nop(),
		Count: func(outcome string, n int) { r.count[outcome] += n },
		Send: func(_ context.Context, list []alerts.Alert) error {
			if r.fails == nil {
				r.sent = append(r.sent, list...)
			}
			return r.fails
		},
	})
	return r
}

func (r *receiver) post(t *testing.T, token, body string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, alerts.Path, strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	return w
}

func TestAlerts_SentOnce(t *testing.T) {
	r := newReceiver(t)
	for range 2 {
		require.Equal(t, http.StatusNoContent, r.post(t, "s3cret", documented).Code)
	}
	require.Len(t, r.sent, 2)
	assert.Equal(t, alerts.Alert{
		Fingerprint: "7df1dc9aa9e0c1b8", Status: alerts.Firing, Name: "PipeOpsAppFailed", Severity: "critical", Namespace: "shop", App: "web",
		Summary: "The App shop/web does not serve", StartedAt: noon.Add(-time.Minute + 123*time.Millisecond), At: noon.Add(-time.Minute + 123*time.Millisecond),
	}, r.sent[0])
	assert.Equal(t, alerts.Alert{
		Fingerprint: "0000000000000001", Status: alerts.Resolved, Name: "PipeOpsNodeNotReady", Summary: "vm-1 is not ready",
		StartedAt: noon.Add(-61 * time.Minute), At: noon.Add(-31 * time.Minute),
	}, r.sent[1], "a label that is not a name is left out")
	assert.Equal(t, map[string]int{alerts.Sent: 2, alerts.Known: 2, alerts.Limited: 0}, r.count)

	require.Equal(t, http.StatusNoContent, r.post(t, "s3cret", strings.Replace(documented, `"status": "firing", "labels"`, `"status": "resolved", "labels"`, 1)).Code)
	require.Len(t, r.sent, 3)
	assert.Equal(t, alerts.Resolved, r.sent[2].Status)
	assert.NotEqual(t, r.sent[0].ID(), r.sent[2].ID())
}

func TestAlerts_NameMeasuredObject(t *testing.T) {
	for _, c := range []struct {
		labels         map[string]string
		namespace, app string
	}{
		{map[string]string{"namespace": "monitoring", "exported_namespace": "shop"}, "shop", ""},
		{map[string]string{"namespace": "shop", "pipeops_io_app": "web"}, "shop", "web"},
		{map[string]string{"alertname": "NodeDown"}, "", ""},
	} {
		namespace, app := alerts.Subject(c.labels)
		assert.Equal(t, []string{c.namespace, c.app}, []string{namespace, app}, c.labels)
	}
	r := newReceiver(t)
	body := strings.Replace(documented, `"namespace": "shop"`, `"namespace": "monitoring", "exported_namespace": "shop"`, 1)
	require.NotEqual(t, documented, body)
	require.Equal(t, http.StatusNoContent, r.post(t, "s3cret", body).Code)
	assert.Equal(t, "shop", r.sent[0].Namespace)
}

func TestAlerts_KeptUntilAccepted(t *testing.T) {
	r := newReceiver(t)
	r.fails = errors.New("no connection")
	require.Equal(t, http.StatusServiceUnavailable, r.post(t, "s3cret", documented).Code)
	assert.Equal(t, 2, r.count[alerts.Failed])
	r.fails = nil
	require.Equal(t, http.StatusNoContent, r.post(t, "s3cret", documented).Code)
	assert.Len(t, r.sent, 2)
}

func TestAlerts_NeedToken(t *testing.T) {
	r := newReceiver(t)
	for _, token := range []string{"", "wrong", "s3cret2"} {
		assert.Equal(t, http.StatusUnauthorized, r.post(t, token, documented).Code)
	}
	require.NoError(t, os.WriteFile(r.token, []byte("another"), 0o600))
	assert.Equal(t, http.StatusUnauthorized, r.post(t, "s3cret", documented).Code)
	assert.Equal(t, http.StatusNoContent, r.post(t, "another", documented).Code, "the file is read again")
	require.NoError(t, os.WriteFile(r.token, nil, 0o600))
	assert.Equal(t, http.StatusUnauthorized, r.post(t, "", documented).Code, "an empty token admits nobody")
	require.NoError(t, os.Remove(r.token))
	assert.Equal(t, http.StatusUnauthorized, r.post(t, "another", documented).Code)
	assert.Len(t, r.sent, 2)
}

func message(first, n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`{"status":"firing","labels":{"alertname":"A"},"startsAt":"2026-01-02T12:00:00Z","fingerprint":"%016x"}`, first+i)
	}
	return `{"version":"4","alerts":[` + strings.Join(list, ",") + `]}`
}

// TestAlerts_Bounded has Alertmanager send more than an agent passes on at once.
func TestAlerts_Bounded(t *testing.T) {
	r := newReceiver(t)
	w := r.post(t, "s3cret", message(0, 250))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code, "Alertmanager sends them again")
	assert.Equal(t, "10", w.Header().Get("Retry-After"))
	assert.Len(t, r.sent, 200)
	r.now = r.now.Add(20 * time.Second)
	r.fails = errors.New("no connection")
	assert.Equal(t, http.StatusServiceUnavailable, r.post(t, "s3cret", message(0, 250)).Code)
	r.fails = nil
	assert.Equal(t, http.StatusServiceUnavailable, r.post(t, "s3cret", message(0, 250)).Code)
	assert.Len(t, r.sent, 202, "what was not taken does not count")
	r.now = r.now.Add(time.Hour)
	assert.Equal(t, http.StatusNoContent, r.post(t, "s3cret", message(0, 250)).Code)
	assert.Len(t, r.sent, 250)
}

func TestAlerts_RefusesInvalid(t *testing.T) {
	r := newReceiver(t)
	for body, status := range map[string]int{
		``:                              http.StatusBadRequest,
		`[]`:                            http.StatusBadRequest,
		`{"version":"3","alerts":[]}`:   http.StatusUnprocessableEntity,
		message(0, 257):                 http.StatusRequestEntityTooLarge,
		strings.Repeat(" ", 1<<20+1):    http.StatusRequestEntityTooLarge,
		`{"version":"4","alerts":[{}]}`: http.StatusUnprocessableEntity,
		strings.ReplaceAll(documented, "7df1dc9aa9e0c1b8", "x"):                        http.StatusUnprocessableEntity,
		strings.ReplaceAll(documented, `"resolved"`, `"suppressed"`):                   http.StatusUnprocessableEntity,
		strings.ReplaceAll(documented, "2026-01-02T11:00:00Z", "0001-01-01T00:00:00Z"): http.StatusUnprocessableEntity,
	} {
		assert.Equal(t, status, r.post(t, "s3cret", body).Code, "%.80s", body)
	}
	assert.Empty(t, r.sent)
}

func fit(at time.Time) bool {
	_, err := at.MarshalJSON()
	return err == nil && !at.IsZero()
}

// FuzzDecode has every alert fit into the control plane's limits.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(documented))
	f.Add([]byte(message(0, 3)))
	f.Fuzz(func(t *testing.T, body []byte) {
		list, err := alerts.Decode(body)
		if err != nil {
			return
		}
		for _, a := range list {
			if a.Name == "" || len(a.Name) > 128 || len(a.Severity) > 64 || len(a.Summary) > 1024 || !fit(a.StartedAt) || !fit(a.At) {
				t.Errorf("an alert past the limits: %+v", a)
			}
			if len(a.Namespace) > 63 || a.App != "" && a.Namespace == "" || strings.ContainsAny(a.Name+a.Summary, "\n\x1b") {
				t.Errorf("an alert with unfit text: %+v", a)
			}
		}
	})
}
