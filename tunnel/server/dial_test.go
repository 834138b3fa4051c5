package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
	"github.com/pipeops/pipeops-vm-agent/test/proxytest"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

func TestDial_HTTP1KeepAlive(t *testing.T) {
	p := newPlane(t)
	p.agent("a1")
	client := p.client("a1", http1)
	var opened atomic.Int64
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) {
		if !i.Reused {
			opened.Add(1)
		}
	}})
	for i := range 50 {
		_, err := ask(ctx, client, fmt.Sprint("request ", i))
		require.NoError(t, err)
	}
	assert.EqualValues(t, 1, opened.Load())
}

func TestDial_ManyClients(t *testing.T) {
	for _, protocol := range []struct {
		name string
		set  func(*http.Protocols)
	}{{"HTTP/1.1", http1}, {"HTTP/2.0", http2}} {
		t.Run(protocol.name, func(t *testing.T) {
			p := newPlane(t)
			p.agent("a1")
			client := p.client("a1", protocol.set)
			body := strings.Repeat("0123456789abcdef", 2048)
			var group sync.WaitGroup
			for i := range 50 {
				group.Go(func() {
					for j := range 3 {
						header, err := ask(t.Context(), client, fmt.Sprint(i, j, body))
						if err != nil {
							t.Error(err)
							return
						}
						assert.Equal(t, protocol.name, header.Get("Proto"), "the agent saw")
					}
				})
			}
			group.Wait()
			stats := p.Stats()
			assert.True(t, stats.Dials == 0 && stats.DialErrors == 0 && stats.DialsTotal > 0, "stats %+v", stats)
		})
	}
}

func echoConnections(ln net.Listener) {
	for {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = conn.Close() }()
			_, _ = io.Copy(conn, conn)
		}()
	}
}

func TestDial_Errors(t *testing.T) {
	p := newPlane(t, func(c *server.Config) {
		c.Limits.Dials = 1
		c.Limits.DialTimeout = 10 * time.Millisecond
	})
	_, err := p.Dial(t.Context(), "nobody")
	assert.ErrorIs(t, err, server.ErrNotConnected, "unknown agent")
	near, far := net.Pipe()
	defer func() { _, _ = near.Close(), far.Close() }()
	assert.ErrorIs(t, p.Handover(t.Context(), "nobody", near), server.ErrNotConnected, "handover to an unknown agent")
	assert.NoError(t, near.SetDeadline(time.Now()), "the connection was taken in spite of the error")

	wire := faultproxy.New(t, p.addr)
	p.agent("a1", func(c *tunnel.Config) { c.ServerAddress = wire.Addr() })
	wire.Set(faultproxy.Silent)
	_, err = p.Dial(t.Context(), "a1")
	assert.ErrorIs(t, err, server.ErrBusy, "silent agent")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = p.Dial(ctx, "a1")
	assert.ErrorIs(t, err, context.Canceled)
}

func TestProxy_RefusesPassword(t *testing.T) {
	p := newPlane(t)
	proxy := proxytest.Start(t, proxytest.Config{Host: "127.0.0.1", Account: "agent:right"})
	a := p.bareAgent("a1", through(t, proxy.URL("agent:wr0ng")))
	a.waitFor(t, tunnel.Waiting)
	got := a.Status().LastError
	assert.Contains(t, got, "407")
	assert.Contains(t, got, "HTTPS_PROXY")
	assert.NotContains(t, got, "wr0ng")
}

// Moves many windows both ways.
func TestDial_Bulk(t *testing.T) {
	p := newPlane(t)
	p.agent("a1")
	body := strings.Repeat("0123456789abcdef", 4<<20/16)
	mustAsk(t, p.client("a1", http1), body)
	mustAsk(t, p.client("a1", http2), body)
}

// visit asks who is at the other end of a connection.
func visit(conn net.Conn) (string, error) {
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: agent\r\nConnection: close\r\n\r\n"); err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.Header.Get("Instance"), nil
}

// visitAll answers which replicas were visited.
func (p *plane) visitAll(id string) (names []string, err error) {
	var mu sync.Mutex
	err = p.DialEach(p.t.Context(), id, func(_ context.Context, conn net.Conn) error {
		name, err := visit(conn)
		mu.Lock()
		defer mu.Unlock()
		names = append(names, name)
		return err
	})
	slices.Sort(names)
	return names, err
}

func TestDialEach_AllReplicas(t *testing.T) {
	p := newPlane(t)
	p.agent("a1", as("one"))
	two := p.agent("a1", as("two"))
	p.agent("a2")
	p.awaitBoth()
	for range 3 {
		if names, err := p.visitAll("a1"); err != nil || !slices.Equal(names, []string{"one", "two"}) {
			t.Errorf("visited %v, %v", names, err)
		}
	}
	assert.NoError(t, two.stop())
	await.Until(t, "one is left", func() bool {
		names, err := p.visitAll("a1")
		return err == nil && slices.Equal(names, []string{"one"})
	})
	if names, err := p.visitAll("nobody"); err != nil || len(names) > 0 {
		t.Errorf("visited %v, %v", names, err)
	}
	failed := errors.New("no")
	err := p.DialEach(t.Context(), "a1", func(_ context.Context, conn net.Conn) error { return errors.Join(failed, conn.Close()) })
	assert.ErrorIs(t, err, failed)
}

// One of two is frozen: the other is visited all the same, and the caller may give up.
func TestDialEach_SilentReplica(t *testing.T) {
	p := newPlane(t)
	wire := faultproxy.New(t, p.addr)
	p.agent("a1", as("one"), over(wire))
	p.agent("a1", as("two"))
	p.awaitBoth()
	wire.Set(faultproxy.Silent)
	visited := make(chan string, 2)
	done := make(chan error, 1)
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	go func() {
		done <- p.DialEach(ctx, "a1", func(ctx context.Context, conn net.Conn) error {
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer stop()
			name, err := visit(conn)
			if err == nil {
				visited <- name
			}
			return err
		})
	}()
	assert.Equal(t, "two", await.Receive(t, visited, "a visit"))
	giveUp()
	t.Logf("the silent one: %v", await.Receive(t, done, "all visits to end"))
}

func TestDialEach_Timeout(t *testing.T) {
	p := newPlane(t, func(c *server.Config) { c.Limits.DialTimeout = time.Second })
	p.agent("a1")
	done := make(chan error, 1)
	go func() {
		done <- p.DialEach(t.Context(), "a1", func(ctx context.Context, conn net.Conn) error {
			<-ctx.Done()
			return errors.Join(ctx.Err(), conn.Close())
		})
	}()
	assert.ErrorIs(t, await.Receive(t, done, "the visit to end"), context.DeadlineExceeded, "it ended by")
}
