package httpserver

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

// Leaving lets the clients of a server go before it stops. A server that closes connections between
// two requests loses those that are on their way (RFC 9112, section 9.6). The zero value is ready
// for one server. A connection with a method Leaving, which reports that it is to end, is treated
// likewise.
type Leaving struct {
	begun  atomic.Bool
	open   atomic.Int64
	closed atomic.Pointer[wake.Signal]
}

type leavingKey struct{}

// Watch follows a server's connections. It is called before the server serves.
func (l *Leaving) Watch(srv *http.Server) {
	signal := wake.New()
	l.closed.Store(&signal)
	inner, handler, state := srv.ConnContext, srv.Handler, srv.ConnState
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if inner != nil {
			ctx = inner(ctx, c)
		}
		if ends, ok := c.(interface{ Leaving() bool }); ok {
			ctx = context.WithValue(ctx, leavingKey{}, ends.Leaving)
		}
		return ctx
	}
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ends, ok := r.Context().Value(leavingKey{}).(func() bool)
		if (l.begun.Load() || ok && ends()) && r.ProtoMajor == 1 && r.Header.Get("Upgrade") == "" {
			w.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(w, r)
	})
	srv.ConnState = func(c net.Conn, to http.ConnState) {
		switch to {
		case http.StateNew:
			l.open.Add(1)
		case http.StateClosed, http.StateHijacked:
			l.open.Add(-1)
			signal.Raise()
		default:
		}
		if state != nil {
			state(c, to)
		}
	}
}

// Leave has each connection of HTTP/1.1 closed after its next answer, and waits until no connection
// is open, for the time linger at most.
func (l *Leaving) Leave(ctx context.Context, linger time.Duration) {
	l.begun.Store(true)
	closed := l.closed.Load()
	if closed == nil {
		return // no server serves
	}
	ctx, cancel := context.WithTimeout(ctx, linger)
	defer cancel()
	for l.open.Load() > 0 && closed.Wait(ctx) {
		continue
	}
}
