package server_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

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
