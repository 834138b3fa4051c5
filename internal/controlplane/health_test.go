package controlplane

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/login"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// readyWhen waits until the control plane says so of itself.
func (p *plane) readyWhen(what string, met func(readiness) bool) readiness {
	p.t.Helper()
	var r readiness
	await.Until(p.t, "it is "+what, func() bool {
		r = p.health.readiness(context.Background())
		return met(r)
	})
	return r
}

func TestReadiness_NotReady(t *testing.T) {
	p := start(t)
	r := p.readyWhen("ready", func(r readiness) bool { return r.Ready })
	assert.False(t, r.Degraded)
	assert.Contains(t, r.Checks["broker"], "none is configured")
	c := p.registered("unwritten")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	notReady := func(ctx context.Context, check, text string) {
		t.Helper()
		r := p.health.readiness(ctx)
		assert.False(t, r.Ready)
		assert.Contains(t, r.Checks[check], text)
		assert.Contains(t, r.Checks["api"], "ok", "the others are checked")
	}
	notReady(ended, "database", "failed: does not answer; look at the log")

	p.liveness.Beat(c.id.AgentID, p.clock.now(), nil)
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	require.Error(t, p.liveness.Flush(late), "a transaction that does not come about")
	notReady(t.Context(), "database", "failed: is read, but heartbeats could not be written: it cannot be reached, or does not answer in time")
	status := func(path string) int { return p.call(p.client(), http.MethodGet, path, "").StatusCode }
	assert.Equal(t, http.StatusServiceUnavailable, status("/readyz"))
	assert.Equal(t, http.StatusOK, status("/healthz"), "the process answers")
	p.liveness.Beat(c.id.AgentID, p.clock.now(), nil)
	require.NoError(t, p.liveness.Flush(t.Context()))
	assert.True(t, p.health.readiness(t.Context()).Ready, "it is written again")
	assert.Equal(t, http.StatusNotFound, status("/nowhere"))

	// The edge has its own listener for certain by the time it has accepted a connection.
	caller, err := net.Dial("tcp", p.Addrs().Edge.String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = caller.Close() })
	await.Until(t, "the edge has accepted", func() bool { return p.Connections()[listenerEdge].Accepted > 0 })
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	broken := limit.Listen(outOfFiles{l}, limit.Config{Log: zerolog.Nop()})
	_, err = broken.Accept()
	require.ErrorIs(t, err, syscall.EMFILE)
	good := p.listeners.edge
	p.listeners.edge = broken
	notReady(t.Context(), "edge", "failed: accepts no connections; look at the log")
	p.listeners.edge = good
	require.NoError(t, l.Close())

	p.clock.forward(p.ca.Certificate().NotAfter.Sub(p.clock.now()) + time.Hour)
	notReady(t.Context(), "ca", "failed: valid until ")
	p.stop()
	r = p.health.readiness(t.Context())
	assert.False(t, r.Ready)
	assert.Equal(t, "failed: not serving", r.Checks["edge"])
}

// outOfFiles is a listener of a process that has too many files open.
type outOfFiles struct{ net.Listener }

func (outOfFiles) Accept() (net.Conn, error) { return nil, syscall.EMFILE }

// TestReadiness_BrokerAway: agents and Runners are served, and announcements are kept.
func TestReadiness_BrokerAway(t *testing.T) {
	p := start(t, func(c *Config) { c.BrokerURLs = []string{"amqp://nobody:nothing@127.0.0.1:1/"} })
	r := p.readyWhen("ready and degraded", func(r readiness) bool { return r.Ready && r.Degraded })
	assert.Contains(t, r.Checks["broker"], "down since")
	assert.NotContains(t, r.Checks["broker"], "nothing", "the password")

	require.NoError(t, p.store.Update(t.Context(), func(tx *store.Tx) error {
		e, err := announce.NewAppEvent("app.failed", "/controlplane", "a", announce.AppEvent{Namespace: "n", Name: "a"}, 1, p.clock.now())
		if err != nil {
			return err
		}
		return tx.Enqueue(t.Context(), e)
	}))
	assert.NotContains(t, p.health.readiness(t.Context()).Checks["outbox"], "failed")
	p.clock.forward(10 * time.Minute)
	r = p.health.readiness(t.Context())
	assert.Contains(t, r.Checks["outbox"], "failed: 1 announcements wait, the first for 10m")
	assert.True(t, r.Ready)
	p.outbox.Dropped.Store(7)
	assert.Contains(t, p.health.readiness(t.Context()).Checks["outbox"], "; 7 were dropped since the start, which later ones supersede")
	text, err := json.Marshal(r)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"degraded":true`)
}

// TestAPI_AllowsMethods holds for the calls of agents, Runners and operators on one port.
func TestAPI_AllowsMethods(t *testing.T) {
	t.Parallel()
	p := start(t)
	for path, allow := range map[string]string{
		announce.SnapshotPath: "GET, HEAD", "/v1/agents/shop": "GET, HEAD", "/v1/agents/register": "GET, HEAD, POST", "/v1/agent/check": "POST",
		login.Path: "POST", "/healthz": "GET, HEAD", operatorapi.Prefix + "tokens": "GET, POST", "/v1/nowhere": "",
	} {
		for _, method := range []string{http.MethodPut, "get"} {
			answer := p.call(p.client(), method, path, "")
			assert.Equal(t, allow, answer.Header.Get("Allow"), "%s %s", method, path)
			assert.Equal(t, allow == "", answer.StatusCode == http.StatusNotFound, "%s %s: %d", method, path, answer.StatusCode)
			assert.Equal(t, problem.ContentType, answer.Header.Get("Content-Type"))
		}
	}
}
