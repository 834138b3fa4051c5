package gateway

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

// drainGrace is how long an idle connection stays open when the gateway stops, for requests that
// the visitor sent before it heard of that.
const drainGrace = time.Second

// idleConns closes connections of HTTP/3 without a request. To http3.Server a stream without a
// header is a request too, and it waits for the header without a limit.
type idleConns struct {
	// first is for how long a connection may have had no request, and between for how long it may
	// have none later.
	first, between time.Duration

	mu       sync.Mutex
	draining bool
	conns    map[*idleConn]struct{}
}

// idleConn is a connection and its requests that are in progress.
type idleConn struct {
	all      *idleConns
	timer    *time.Timer
	underWay int // guarded by all.mu
}

type idleKey struct{}

// watch is for http3.Server.ConnContext.
func (i *idleConns) watch(ctx context.Context, conn *quic.Conn) context.Context {
	i.mu.Lock()
	defer i.mu.Unlock()
	c := &idleConn{all: i}
	c.timer = time.AfterFunc(i.patience(i.first), func() {
		_ = conn.CloseWithError(quic.ApplicationErrorCode(http3.ErrCodeNoError), "idle")
	})
	if i.conns == nil {
		i.conns = map[*idleConn]struct{}{}
	}
	i.conns[c] = struct{}{}
	context.AfterFunc(conn.Context(), func() { i.forget(c) })
	// Without a server, httputil.ReverseProxy takes an answer that breaks off for a whole one.
	return context.WithValue(context.WithValue(ctx, http.ServerContextKey, i), idleKey{}, c)
}

func (i *idleConns) forget(c *idleConn) {
	i.mu.Lock()
	defer i.mu.Unlock()
	c.timer.Stop()
	delete(i.conns, c)
}

func (i *idleConns) patience(usual time.Duration) time.Duration {
	if i.draining {
		return min(usual, drainGrace)
	}
	return usual
}

// drain closes connections soon after their last request.
func (i *idleConns) drain() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.draining = true
	for c := range i.conns {
		if c.underWay == 0 {
			c.timer.Reset(drainGrace)
		}
	}
}

func (c *idleConn) begin() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.underWay++
	c.timer.Stop()
}

func (c *idleConn) end() {
	c.all.mu.Lock()
	defer c.all.mu.Unlock()
	c.underWay--
	if _, open := c.all.conns[c]; open && c.underWay == 0 {
		c.timer.Reset(c.all.patience(c.all.between))
	}
}
