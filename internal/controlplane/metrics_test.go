package controlplane

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
)

// scrape is what Prometheus gets.
func scrape(t *testing.T, at net.Addr) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at.String()+"/metrics", nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, resp.StatusCode)
	return string(body)
}

// sample is one number of a scrape.
func sample(t *testing.T, text, series string) string {
	t.Helper()
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func series(text string) (n int) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			n++
		}
	}
	return n
}

func TestMetrics_Values(t *testing.T) {
	p := start(t, func(c *Config) { c.MetricsListen = "127.0.0.1:0" })
	p.readyWhen("ready", func(r readiness) bool { return r.Ready })
	at, pprof := p.ObservedAt()
	assert.Nil(t, pprof)
	c := p.registered("counted")
	require.NoError(t, c.beat())
	p.clock.forward(50 * time.Second)
	require.NoError(t, c.beat())

	text := scrape(t, at)
	for want, value := range map[string]string{
		"pipeops_controlplane_ready":                                                                      "1",
		"pipeops_controlplane_store_up":                                                                   "1",
		`pipeops_controlplane_agents{state="pending"}`:                                                    "1",
		`pipeops_controlplane_check_ok{check="database"}`:                                                 "1",
		`pipeops_controlplane_heartbeat_gap_seconds_bucket{le="45"}`:                                      "0",
		`pipeops_controlplane_heartbeat_gap_seconds_bucket{le="60"}`:                                      "1",
		`pipeops_controlplane_api_request_duration_seconds_count{code="2xx",route="/v1/agent/heartbeat"}`: "2",
		`pipeops_controlplane_api_request_duration_seconds_count{code="2xx",route="/v1/agents/register"}`: "1",
		"pipeops_controlplane_broker_connected":                                                           "0",
	} {
		assert.Equal(t, value, sample(t, text, want), want)
	}
	assert.NotEmpty(t, sample(t, text, `pipeops_controlplane_certificate_expiry_timestamp_seconds{certificate="ca"}`))
	assert.NotContains(t, text, "frp", "its numbers are in the default registry, and stay there")
	assert.NotContains(t, text, "counted", "an agent's name")
	assert.NotContains(t, text, c.id.AgentID)
	problems, err := testutil.GatherAndLint(p.instruments.registry)
	require.NoError(t, err)
	assert.Empty(t, problems, "names as Prometheus wants them")
}

// TestMetrics_BoundedSeries: no label is a name, an ID or a path.
func TestMetrics_BoundedSeries(t *testing.T) {
	const many = 500
	p := start(t, func(c *Config) { c.MetricsListen = "127.0.0.1:0" })
	at, _ := p.ObservedAt()
	c := p.registered("first")
	beat := func() { require.NoError(t, c.beat()) }
	client := p.client()
	stray := func(path string) { p.call(client, http.MethodGet, path, "") }
	beat()
	stray("/first")
	before := series(scrape(t, at))

	require.NoError(t, p.store.Update(t.Context(), func(tx *store.Tx) error {
		for n := range many {
			if err := tx.InsertAgent(t.Context(), store.Agent{
				ID: fmt.Sprintf("agent-%d", n), Name: fmt.Sprintf("cluster-%d", n), ClusterUID: fmt.Sprintf("uid-%d", n),
				State: announce.StateOnline, Labels: map[string]string{"n": fmt.Sprint(n)}, RegisteredAt: p.clock.now(),
			}); err != nil {
				return err
			}
		}
		return nil
	}))
	for n := range many {
		p.liveness.Beat(fmt.Sprintf("agent-%d", n), p.clock.now(), nil)
	}
	for n := range 50 {
		stray(fmt.Sprintf("/v1/%d", n))
		stray(fmt.Sprintf("/v1/agent/%d", n))
	}
	beat()
	text := scrape(t, at)
	assert.Equal(t, before, series(text), text)
	assert.Contains(t, []string{"500", "499", "501"}, sample(t, text, `pipeops_controlplane_agents{state="online"}`))
}

// silentPublisher is a broker that does not confirm, for the numbers alone.
type silentPublisher struct{ err error }

func (s silentPublisher) Publish(_ context.Context, events []announce.Encoded) (int, error) {
	return len(events) - 1, s.err
}

func TestMetrics_AnnouncementResults(t *testing.T) {
	i := newInstruments("test")
	rejected := &rabbitmq.Error{Code: rabbitmq.CodeRejected}
	m := measuredPublisher{silentPublisher{rejected}, i}
	n, err := m.Publish(t.Context(), make([]announce.Encoded, 3))
	assert.Equal(t, 2, n)
	assert.Equal(t, rejected, err)
	for result, want := range map[string]float64{announcedConfirmed: 2, announcedFailed: 1} {
		assert.InDelta(t, want, testutil.ToFloat64(i.announced.WithLabelValues(result)), 0, result)
	}
}
