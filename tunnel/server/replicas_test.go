package server_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

func as(instance string) func(*tunnel.Config) {
	return func(c *tunnel.Config) { c.Instance = instance }
}

func over(wire *faultproxy.Proxy) func(*tunnel.Config) {
	return func(c *tunnel.Config) { c.ServerAddress = wire.Addr() }
}

// who asks over a separate connection and answers which replica took it.
func (p *plane) who(ctx context.Context, id string) (string, error) {
	client := p.client(id, http1)
	defer client.CloseIdleConnections()
	header, err := ask(ctx, client, "who")
	return header.Get("Instance"), err
}

// takers are the replicas that took n connections, each with how many.
func (p *plane) takers(id string, n int) map[string]int {
	p.t.Helper()
	count := map[string]int{}
	for range n {
		name, err := p.who(p.t.Context(), id)
		require.NoError(p.t, err)
		count[name]++
	}
	return count
}

// awaitBoth waits until both replicas of a1 take connections.
func (p *plane) awaitBoth() {
	p.t.Helper()
	await.Until(p.t, "both take connections", func() bool { return len(p.takers("a1", 2)) == 2 })
}

func TestReplicas_TakeTurns(t *testing.T) {
	p := newPlane(t)
	one := p.agent("a1", as("one"))
	two := p.agent("a1", as("two"))
	p.awaitBoth()
	got := p.takers("a1", 8)
	assert.True(t, got["one"] == 4 && got["two"] == 4, "connections went to %v", got)
	assert.NoError(t, one.stop())
	got = p.takers("a1", 4)
	assert.Equal(t, 4, got["two"], "connections went to %v", got)
	assert.Equal(t, "up a1", p.told(), "one replica of two is the agent")
	assert.NoError(t, two.stop())
	await.Until(t, "down", func() bool { return p.told() == "up a1, down a1" })
	_, err := p.Dial(t.Context(), "a1")
	assert.ErrorIs(t, err, server.ErrNotConnected, "dial afterwards")
}

// Replaces one replica whose connection is dead; the other is not disturbed.
func TestReplicas_Takeover(t *testing.T) {
	p := newPlane(t)
	wire := faultproxy.New(t, p.addr)
	p.agent("a1", as("one"), over(wire))
	two := p.agent("a1", as("two"))
	p.awaitBoth()
	wire.Set(faultproxy.Silent)
	p.agent("a1", as("one"))
	await.Until(t, "the dead session is gone", func() bool { return p.Stats().Sessions == 2 })
	p.awaitBoth()
	got := p.takers("a1", 4)
	assert.True(t, got["one"] == 2 && got["two"] == 2, "connections went to %v", got)
	s := two.Status()
	assert.True(t, s.Phase == tunnel.Connected && s.Reconnects == 0, "the other replica: %+v", s)
	assert.Equal(t, "up a1", p.told())
}

// One of two is frozen: nobody knows yet that its connection is dead, and frps even has work
// connections of it ready.
func TestReplicas_SilentReplica(t *testing.T) {
	p := newPlane(t, func(c *server.Config) { c.Limits.HedgeAfter = 10 * time.Millisecond })
	wire := faultproxy.New(t, p.addr)
	p.agent("a1", as("one"), over(wire))
	p.agent("a1", as("two"))
	// A machine may be so busy that the multiplexer notices it first once.
	for range 5 {
		p.awaitBoth()
		wire.Set(faultproxy.Silent)
		got := p.takers("a1", 6)
		assert.Equal(t, 6, got["two"], "connections went to %v", got)
		noticed := p.Stats().Sessions < 2
		assert.Zero(t, p.Stats().DialErrors, "dials failed")
		if !noticed {
			return
		}
		wire.Set(faultproxy.Condition{})
	}
	t.Error("connections were made only when the multiplexer had noticed that the replica is dead")
}

// The connections of one of two are cut again and again while it is dialled.
func TestReplicas_DyingReplica(t *testing.T) {
	p := newPlane(t)
	wire := faultproxy.New(t, p.addr)
	dying := p.agent("a1", as("one"), over(wire), func(c *tunnel.Config) {
		c.Backoff = tunnel.Backoff{Initial: time.Millisecond, Max: 10 * time.Millisecond}
	})
	p.agent("a1", as("two"))
	p.awaitBoth()
	ctx, cancel := context.WithCancel(t.Context())
	var runners sync.WaitGroup
	for range 4 {
		runners.Go(func() {
			for ctx.Err() == nil {
				conn, err := p.Dial(ctx, "a1")
				if err == nil {
					err = conn.Close()
				}
				if err != nil && ctx.Err() == nil {
					t.Errorf("dial: %v", err)
					return
				}
			}
		})
	}
	for n := range 10 {
		wire.Reset()
		await.Until(t, "it is back", func() bool {
			s := dying.Status()
			return s.Phase == tunnel.Connected && s.Reconnects > n
		})
	}
	cancel()
	runners.Wait()
	assert.Equal(t, "up a1", p.told())
}

func TestReplicas_Limited(t *testing.T) {
	p := newPlane(t, func(c *server.Config) { c.Limits.Instances = 2 })
	one := p.agent("a1", as("one"))
	p.agent("a1", as("two"))
	p.awaitBoth()
	three := p.bareAgent("a1", as("three"))
	three.waitFor(t, tunnel.Waiting)
	got := three.Status().LastError
	assert.True(t, strings.Contains(got, "too many replicas") && strings.Contains(got, "scale the agent down"), "error %q", got)
	if got := p.takers("a1", 4); got["one"] != 2 || got["two"] != 2 {
		t.Errorf("connections went to %v", got)
	}
	p.agent("a2", as("three")) // the bound is each agent's own
	assert.NoError(t, one.stop())
	three.waitFor(t, tunnel.Connected)
}

// One of two replicas drains while connections keep coming and one is in use.
func TestDrain_LosesNoConnection(t *testing.T) {
	p := newPlane(t)
	one := p.agent("a1", as("one"))
	atWork := p.slowRequest(t)
	two := p.agent("a1", as("two"))
	p.awaitBoth()

	ctx, cancel := context.WithCancel(t.Context())
	var runners sync.WaitGroup
	for range 4 {
		runners.Go(func() {
			for ctx.Err() == nil {
				if _, err := p.who(ctx, "a1"); err != nil && ctx.Err() == nil {
					t.Errorf("a connection was lost: %v", err)
					return
				}
			}
		})
	}
	assert.NoError(t, one.Drain(t.Context()))
	got := p.takers("a1", 6)
	assert.Equal(t, 6, got["two"], "after draining connections went to %v", got)
	cancel()
	runners.Wait()

	assert.NoError(t, two.Drain(t.Context()))
	assert.Equal(t, "up a1, down a1", p.told(), "nobody takes connections")
	_, err := p.Dial(t.Context(), "a1")
	assert.ErrorIs(t, err, server.ErrNotConnected)
	held := p.Held()
	assert.True(t, !p.Connected("a1") && slices.Equal(held, []string{"a1"}), "held: %q, though something is at work", held)
	assert.Equal(t, "one", atWork(), "what was at work ended with")
	p.Disconnect("a1")
	await.Until(t, "no session is left", func() bool { return p.Stats().Sessions == 0 && len(p.Held()) == 0 })
	one.waitFor(t, tunnel.Stopped)
	assert.NoError(t, one.stop())
	assert.Zero(t, one.Status().Reconnects)
}

// slowRequest begins a request. The function that it answers ends it and answers which
// replica took it.
func (p *plane) slowRequest(t *testing.T) (end func() string) {
	t.Helper()
	body, more := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://agent/", body)
	require.NoError(t, err)
	client, done := p.client("a1", http1), make(chan string, 1)
	go func() {
		resp, err := client.Do(req)
		if err != nil {
			done <- err.Error()
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		done <- resp.Header.Get("Instance")
	}()
	if _, err := io.WriteString(more, "begun"); err != nil { // it is taken when the connection is there
		t.Fatal(err)
	}
	return func() string {
		_ = more.Close()
		return await.Receive(t, done, "the answer of the slow request")
	}
}
