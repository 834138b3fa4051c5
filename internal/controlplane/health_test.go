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

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/directory"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
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

func TestReadiness_NoBroker(t *testing.T) {
	p := start(t)
	r := p.readyWhen("ready", func(r readiness) bool { return r.Ready })
	assert.False(t, r.Degraded, "none is configured: nothing is wrong")
	assert.Contains(t, r.Checks["broker"], "none is configured")
}

func TestReadiness_DatabaseAway(t *testing.T) {
	p := start(t)
	p.readyWhen("ready", func(r readiness) bool { return r.Ready })
	late, cancel := context.WithCancel(t.Context())
	cancel() // so no answer comes in time
	r := p.health.readiness(late)
	assert.False(t, r.Ready)
	assert.Equal(t, "failed: does not answer; look at the log", r.Checks["database"])
	assert.Contains(t, r.Checks["api"], "ok", "the others say how they are")
}

// TestReadiness_DatabaseNotWritable: the database still answers queries.
func TestReadiness_DatabaseNotWritable(t *testing.T) {
	p := start(t)
	c := p.registered("unwritten")
	p.liveness.Beat(c.id.AgentID, p.clock.now(), nil)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, p.liveness.Flush(ended), "a transaction that does not come about")
	assert.Equal(t, "failed: is read, but heartbeats could not be written; look at the log", p.health.readiness(t.Context()).Checks["database"])
	assert.False(t, p.health.readiness(t.Context()).Ready)
	p.liveness.Beat(c.id.AgentID, p.clock.now(), nil)
	require.NoError(t, p.liveness.Flush(t.Context()))
	assert.True(t, p.health.readiness(t.Context()).Ready, "it is written again")
}

func TestReadiness_CAEnded(t *testing.T) {
	p := start(t)
	p.readyWhen("ready", func(r readiness) bool { return r.Ready })
	p.clock.forward(p.ca.Certificate().NotAfter.Sub(p.clock.now()) + time.Hour)
	r := p.health.readiness(t.Context())
	assert.False(t, r.Ready)
	assert.Contains(t, r.Checks["ca"], "failed: valid until ")
}

// outOfFiles is a listener of a process that has too many files open.
type outOfFiles struct{ net.Listener }

func (outOfFiles) Accept() (net.Conn, error) { return nil, syscall.EMFILE }

func TestReadiness_ListenerBroken(t *testing.T) {
	p := start(t)
	p.readyWhen("ready", func(r readiness) bool { return r.Ready })
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	// The edge has its own listener for certain by the time it has accepted somebody.
	caller, err := net.Dial("tcp", p.Addrs().Edge.String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = caller.Close() })
	await.Until(t, "the edge has accepted", func() bool { return p.Connections()[listenerEdge].Accepted > 0 })
	broken := limit.Listen(outOfFiles{l}, limit.Config{Log: zerolog.Nop()})
	_, err = broken.Accept()
	require.ErrorIs(t, err, syscall.EMFILE)
	good := p.listeners.edge
	p.listeners.edge = broken
	r := p.health.readiness(t.Context())
	assert.False(t, r.Ready)
	assert.Equal(t, "failed: accepts no connections; look at the log", r.Checks["edge"])
	p.listeners.edge = good
	require.NoError(t, l.Close())
}

func TestReadiness_Stopped(t *testing.T) {
	p := start(t)
	p.readyWhen("ready", func(r readiness) bool { return r.Ready })
	p.stop()
	r := p.health.readiness(t.Context())
	assert.False(t, r.Ready)
	assert.Equal(t, "failed: not serving", r.Checks["edge"])
}

// TestReadiness_BrokerAway: agents and Runners are served, and announcements are kept.
func TestReadiness_BrokerAway(t *testing.T) {
	p := start(t, func(c *Config) { c.BrokerURLs = []string{"amqp://nobody:nothing@127.0.0.1:1/"} })
	r := p.readyWhen("ready and degraded", func(r readiness) bool { return r.Ready && r.Degraded })
	assert.Contains(t, r.Checks["broker"], "down since")
	assert.NotContains(t, r.Checks["broker"], "nothing", "the password")

	require.NoError(t, p.store.Update(t.Context(), func(tx *store.Tx) error {
		e, err := announce.NewAppEvent("app.failed", directory.EventSource, "a", announce.AppEvent{Namespace: "n", Name: "a"}, 1, p.clock.now())
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
	text, err := json.Marshal(r)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"degraded":true`)
}

func TestReadyz_Status(t *testing.T) {
	p := start(t)
	client := p.client()
	p.readyWhen("ready", func(r readiness) bool { return r.Ready })
	p.get(client, "/readyz", func(r *http.Response) { assert.Equal(t, http.StatusOK, r.StatusCode) })
	p.liveness.Unwritten.Store(true)
	p.get(client, "/readyz", func(r *http.Response) { assert.Equal(t, http.StatusServiceUnavailable, r.StatusCode) })
	p.get(client, "/healthz", func(r *http.Response) { assert.Equal(t, http.StatusOK, r.StatusCode, "the process answers") })
}
