package dashboard

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/app/sizing"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// listen opens a page's stream and returns its events.
func (r *rig) listen(path string) <-chan string {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.server.URL+path, nil)
	require.NoError(r.t, err)
	resp, err := r.browser.Do(req)
	require.NoError(r.t, err)
	assert.Equal(r.t, "text/event-stream", resp.Header.Get("Content-Type"))
	r.t.Cleanup(func() {
		cancel()
		_ = resp.Body.Close()
	})
	events := make(chan string, 64)
	go func() {
		defer close(events)
		buffer := make([]byte, 64<<10)
		for {
			n, err := resp.Body.Read(buffer)
			if n > 0 {
				events <- string(buffer[:n])
			}
			if err != nil {
				return
			}
		}
	}()
	return events
}

// TestStream_ReportsStale deletes the App that an open page is about: the stream continues.
func TestStream_ReportsStale(t *testing.T) {
	r := newRig(t, app("shop", "web"))
	events := r.listen("/live/apps/shop/web")
	assert.Contains(t, await.Receive(t, events, "the page as it is"), `<div id="away" hx-swap-oob="innerHTML"></div>`)
	require.NoError(t, r.client.Delete(t.Context(), app("shop", "web")))
	old := await.Receive(t, events, "that the page is old")
	assert.Contains(t, old, "There is no App shop/web")
	assert.Contains(t, old, "The page shows the state of then")
	assert.NotContains(t, old, "<h1>", "the page itself stays")
	require.NoError(t, r.client.Create(t.Context(), app("shop", "web")))
	assert.Contains(t, await.Receive(t, events, "the page as it is again"), "<h1>web</h1>")
}

func TestPages_ClusterUnavailable(t *testing.T) {
	r := newRig(t)
	r.facts.err = problem.Errorf(problem.Unavailable, "look at it", "the Kubernetes API cannot be reached")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.server.URL+"/nodes", nil)
	require.NoError(t, err)
	resp, err := r.browser.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.Equal(t, "10", resp.Header.Get("Refresh"), "the page comes back by itself")
	assert.Regexp(t, `The Kubernetes API cannot be reached, since 20\d\d-[^;]+; this page tries again by itself`, r.get("/nodes", http.StatusServiceUnavailable))
}

func TestOutage_KeepsBeginning(t *testing.T) {
	now := time.Date(2026, 7, 4, 20, 0, 0, 0, time.UTC)
	o := newOutages(func() time.Time { return now })
	first := now
	assert.Equal(t, first, o.saw("tunnel", true))
	now = now.Add(time.Hour)
	assert.Equal(t, first, o.saw("tunnel", true))
	assert.Zero(t, o.saw("tunnel", false))
	assert.Equal(t, now, o.saw("tunnel", true))
}

// TestAgentLinks shows the agent's reports about its tunnel and the control plane.
func TestAgentLinks(t *testing.T) {
	r := newRig(t)
	var says Readiness
	var err error
	r.d.opts.Readiness = func(context.Context) (Readiness, error) { return says, err }
	says = Readiness{Ready: true, Version: "v1"}
	assert.Contains(t, r.get("/", http.StatusOK), "Runners reach this cluster")
	says = Readiness{Ready: true, Worse: []string{"tunnels: 1 of 2 up", "control plane: no answer since 2026-07-04T20:27:12Z: no route"}}
	page := r.get("/", http.StatusOK)
	assert.Contains(t, page, "Tunnel degraded")
	assert.Contains(t, page, "Control plane: no route, since 2026-07-04 20:27:12 UTC")
	says = Readiness{Missing: []string{"tunnel: waiting: no route"}}
	page = r.get("/", http.StatusOK)
	assert.Contains(t, page, "Tunnel down")
	assert.Contains(t, page, "Runners do not reach this cluster")
	err = errors.New("connection refused")
	page = r.get("/", http.StatusOK)
	assert.Contains(t, page, "The agent does not respond")
	assert.Contains(t, page, "Control plane unknown")
}

// TestAppUsage has Prometheus answer, fail and be absent.
func TestAppUsage(t *testing.T) {
	r := newRig(t, app("shop", "web"), app("shop", "other"), app("shop", "third"))
	assert.Contains(t, r.get("/apps/shop/web", http.StatusOK), "There are no values of this App yet", "before the first sample")
	r.used = func() (map[runnerapi.Key]sizing.AppUse, error) {
		return nil, runnerapi.NotSupported("", "the cluster has no metrics-server")
	}
	r.d.samples.take(t.Context())
	assert.Contains(t, r.get("/apps/shop/web", http.StatusOK), "The cluster does not record usage")
	r.used = func() (map[runnerapi.Key]sizing.AppUse, error) {
		return map[runnerapi.Key]sizing.AppUse{{Namespace: "shop", Name: "web"}: {CPU: 250, Memory: 64 << 20}}, nil
	}
	r.d.samples.take(t.Context())
	sampled := r.get("/apps/shop/web", http.StatusOK)
	assert.Contains(t, sampled, "CPU: last 0.250 cores")
	assert.Contains(t, sampled, "From metrics-server, since the dashboard started")
	assert.NotContains(t, sampled, "?span=", "an hour is all there is")
	asked := 0
	r.metrics = func() (runnerapi.MetricsHistory, error) {
		asked++
		return runnerapi.MetricsHistory{Start: time.Now(), Series: []runnerapi.MetricSeries{
			{Metric: runnerapi.MetricCPU, Values: []*float64{new(0.25), new(0.5)}}, {Metric: runnerapi.MetricMemory, Values: []*float64{new(1048576.0)}}, {Metric: runnerapi.MetricRestarts, Values: []*float64{new(1.0)}},
		}}, nil
	}
	page := r.get("/apps/shop/other?span=24h", http.StatusOK)
	assert.Contains(t, page, "CPU: last 0.500 cores, lowest 0.250 cores, average 0.375 cores, highest 0.500 cores")
	assert.Contains(t, page, "Memory: last 1")
	assert.Contains(t, page, `<a href="?span=24h" aria-current="true">`)
	assert.NotContains(t, page, "restarts: last")
	r.get("/apps/shop/other?span=24h", http.StatusOK)
	assert.Equal(t, 1, asked, "an open page asks Prometheus rarely")
	r.metrics = func() (runnerapi.MetricsHistory, error) {
		return runnerapi.MetricsHistory{}, problem.Errorf(problem.Unavailable, "look at it", "the component prometheus does not work")
	}
	assert.Contains(t, r.get("/apps/shop/third", http.StatusOK), "The component prometheus does not work", "the page shows the rest")
	both := r.get("/apps/shop/web?span=1h", http.StatusOK)
	assert.Contains(t, both, "The component prometheus does not work")
	assert.Contains(t, both, "CPU: last 0.250 cores")
}
