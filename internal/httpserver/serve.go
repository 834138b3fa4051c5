// Package httpserver serves as net/http does, but answers with problem details also what net/http
// itself refuses over HTTP/1.1, such as a malformed request line.
package httpserver

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/internal/wrapconn"
)

// Serve serves on a listener until it fails or the server is shut down, with TLS if the server has
// a configuration for it. It is called once for a server, and owns the listener.
//
// net/http serves HTTP/2 only on a bare *tls.Conn, and HTTP/1.1 on any connection. So Serve makes
// the handshake, and wraps a connection without HTTP/2.
func Serve(srv *http.Server, ln net.Listener) error {
	return newServer(srv, ln).serve()
}

func newServer(srv *http.Server, ln net.Listener) *server {
	return &server{Server: srv, listener: ln, reading: requests{fewer: wake.New()}}
}

func (s *server) serve() error {
	srv, ln := s.Server, s.listener
	boundHeaders(srv)
	watchRequests(srv)
	if srv.TLSConfig == nil {
		return s.ended(srv.Serve(plainListener{ln, s}))
	}
	if len(srv.TLSConfig.NextProtos) == 0 {
		srv.TLSConfig = srv.TLSConfig.Clone()
		srv.TLSConfig.NextProtos = []string{"h2", "http/1.1"}
	}
	var cancel context.CancelFunc
	s.ctx, cancel = context.WithCancel(context.Background())
	defer s.handshakes.Wait()
	defer cancel()
	srv.RegisterOnShutdown(func() {
		cancel()
		s.stopAccepting()
	})
	// A server that was already shut down reports it here, and only here.
	if err := srv.Serve(&one{}); errors.Is(err, http.ErrServerClosed) {
		return errors.Join(err, ln.Close())
	}
	return s.ended(s.accept())
}

// ended returns how accepting ended. After stopAccepting, it waits for what had begun.
func (s *server) ended(err error) error {
	if !s.closing.Load() {
		return err
	}
	s.handshakes.Wait() // until Shutdown cancels them
	s.fresh.Wait()
	return http.ErrServerClosed
}

// stopAccepting ends accepting, and lets handshakes and first requests go on. The server still
// runs: one that shuts down closes a connection of HTTP/1.1 whose request it has just read.
func (s *server) stopAccepting() {
	s.closing.Store(true)
	_ = s.listener.Close()
}

type server struct {
	*http.Server
	listener   net.Listener
	ctx        context.Context //nolint:containedctx // ends handshakes
	closing    atomic.Bool
	handshakes sync.WaitGroup
	fresh      sync.WaitGroup // connections of HTTP/1.1 before their first request
	reading    requests       // of HTTP/1.1
}

// freshFor is how long a connection may have no request before it counts as idle, as in net/http.
const freshFor = 5 * time.Second

// How long to wait after a temporary error of Accept, such as too many open files.
const (
	pauseMin = 5 * time.Millisecond
	pauseMax = time.Second
)

func (s *server) accept() error {
	pause := pauseMin
	for {
		raw, err := s.listener.Accept()
		passing, isNet := err.(net.Error) //nolint:errorlint // as net/http does
		switch {
		case err == nil:
			pause = pauseMin
			s.handshakes.Go(func() { s.take(raw) })
		case s.closing.Load():
			return http.ErrServerClosed
		case isNet && passing.Temporary(): //nolint:staticcheck // as net/http does
			time.Sleep(pause)
			pause = min(2*pause, pauseMax)
		default:
			return errors.Join(err, s.listener.Close())
		}
	}
}

// take makes the handshake. If it fails, net/http finds and logs the same error.
func (s *server) take(raw net.Conn) {
	secure := tls.Server(raw, s.TLSConfig)
	timeout := handshakeTimeout(s.Server)
	if timeout > 0 {
		_ = raw.SetDeadline(time.Now().Add(timeout)) // a closed connection's handshake fails anyway
	}
	err := secure.HandshakeContext(s.ctx)
	if timeout > 0 && err == nil {
		_ = raw.SetDeadline(time.Time{}) // as above
	}
	next := net.Conn(secure)
	if p := secure.ConnectionState().NegotiatedProtocol; err == nil && (p == "" || p == "http/1.1") {
		next = secureConn{s.freshConn(secure), secure}
	}
	single := &one{conn: next}
	if err := s.Serve(single); errors.Is(err, http.ErrServerClosed) && single.conn != nil {
		_ = next.Close() // no server accepts it
		if own := ownConn(next); own != nil {
			own.settled()
		}
	}
}

// freshConn returns a connection whose first request the server waits for when it stops.
func (s *server) freshConn(c net.Conn) *conn {
	s.fresh.Add(1)
	done := sync.OnceFunc(s.fresh.Done)
	late := time.AfterFunc(freshFor, done)
	return &conn{Conn: wrapconn.Conn{Conn: c}, read: &s.reading, settled: func() {
		late.Stop()
		done()
	}}
}

// handshakeTimeout returns the timeout that net/http uses.
func handshakeTimeout(srv *http.Server) (least time.Duration) {
	for _, d := range []time.Duration{srv.ReadHeaderTimeout, srv.ReadTimeout, srv.WriteTimeout} {
		if d > 0 && (least == 0 || d < least) {
			least = d
		}
	}
	return least
}

// one is a listener of one connection.
type one struct{ conn net.Conn }

// Accept implements net.Listener.
func (o *one) Accept() (net.Conn, error) {
	if o.conn == nil {
		return nil, io.EOF
	}
	conn := o.conn
	o.conn = nil
	return conn, nil
}

// Close implements net.Listener.
func (*one) Close() error { return nil }

// Addr implements net.Listener.
func (*one) Addr() net.Addr { return &net.TCPAddr{} }

// plainListener wraps connections without TLS.
type plainListener struct {
	net.Listener
	server *server
}

// Accept implements net.Listener.
func (l plainListener) Accept() (net.Conn, error) {
	raw, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.server.freshConn(raw), nil
}
