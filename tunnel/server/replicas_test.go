package server_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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

// who asks over a connection of its own and answers which replica took it.
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
		if err != nil {
			p.t.Fatal(err)
		}
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
	if got := p.takers("a1", 8); got["one"] != 4 || got["two"] != 4 {
		t.Errorf("connections went to %v", got)
	}
	if err := one.stop(); err != nil {
		t.Error(err)
	}
	if got := p.takers("a1", 4); got["two"] != 4 {
		t.Errorf("connections went to %v", got)
	}
	if told := p.told(); told != "up a1" {
		t.Errorf("told %q: one replica of two is the agent", told)
	}
	if err := two.stop(); err != nil {
		t.Error(err)
	}
	await.Until(t, "down", func() bool { return p.told() == "up a1, down a1" })
	if _, err := p.Dial(t.Context(), "a1"); !errors.Is(err, server.ErrNotConnected) {
		t.Errorf("dial afterwards: %v", err)
	}
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
	if got := p.takers("a1", 4); got["one"] != 2 || got["two"] != 2 {
		t.Errorf("connections went to %v", got)
	}
	if s := two.Status(); s.Phase != tunnel.Connected || s.Reconnects != 0 {
		t.Errorf("the other replica: %+v", s)
	}
	if told := p.told(); told != "up a1" {
		t.Errorf("told %q", told)
	}
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
		if got := p.takers("a1", 6); got["two"] != 6 {
			t.Errorf("connections went to %v", got)
		}
		noticed := p.Stats().Sessions < 2
		if got := p.Stats().DialErrors; got != 0 {
			t.Errorf("%d dials failed", got)
		}
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
	if told := p.told(); told != "up a1" {
		t.Errorf("told %q", told)
	}
}

func TestReplicas_Limited(t *testing.T) {
	p := newPlane(t, func(c *server.Config) { c.Limits.Instances = 2 })
	one := p.agent("a1", as("one"))
	p.agent("a1", as("two"))
	p.awaitBoth()
	three := p.bareAgent("a1", as("three"))
	three.waitFor(t, tunnel.Waiting)
	if got := three.Status().LastError; !strings.Contains(got, "too many replicas") || !strings.Contains(got, "scale the agent down") {
		t.Errorf("error %q", got)
	}
	if got := p.takers("a1", 4); got["one"] != 2 || got["two"] != 2 {
		t.Errorf("connections went to %v", got)
	}
	p.agent("a2", as("three")) // the bound is each agent's own
	if err := one.stop(); err != nil {
		t.Error(err)
	}
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
	if err := one.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if got := p.takers("a1", 6); got["two"] != 6 {
		t.Errorf("after draining connections went to %v", got)
	}
	cancel()
	runners.Wait()

	if err := two.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	if told := p.told(); told != "up a1, down a1" {
		t.Errorf("told %q: nobody takes connections", told)
	}
	if _, err := p.Dial(t.Context(), "a1"); !errors.Is(err, server.ErrNotConnected) {
		t.Errorf("dial: %v", err)
	}
	if held := p.Held(); p.Connected("a1") || !slices.Equal(held, []string{"a1"}) {
		t.Errorf("held: %q, though something is at work", held)
	}
	if got := atWork(); got != "one" {
		t.Errorf("what was at work ended with %q", got)
	}
	p.Disconnect("a1")
	await.Until(t, "no session is left", func() bool { return p.Stats().Sessions == 0 && len(p.Held()) == 0 })
	one.waitFor(t, tunnel.Stopped)
	if err := one.stop(); err != nil {
		t.Error(err)
	}
	if n := one.Status().Reconnects; n != 0 {
		t.Errorf("a drained tunnel connected again %d times", n)
	}
}

// slowRequest begins a request. The function that it answers ends it and answers which
// replica took it.
func (p *plane) slowRequest(t *testing.T) (end func() string) {
	t.Helper()
	body, more := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://agent/", body)
	if err != nil {
		t.Fatal(err)
	}
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
