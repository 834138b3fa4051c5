package httpserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/internal/wrapconn"
)

// conn is a connection of HTTP/1.1. While no request is with the handler, what is written is an
// answer of net/http's own: it writes each with one call.
type conn struct {
	wrapconn.Conn
	handled atomic.Bool // from the handler's begin until the answer is sent; for good when hijacked
	framing framing
	settled func()
	read    *requests
	reading atomic.Bool // counted in read
}

// requests counts the requests that are being read: their handlers have not begun.
type requests struct {
	n     atomic.Int64
	fewer wake.Signal
}

// wait waits until no request is being read, or the context ends.
func (r *requests) wait(ctx context.Context) {
	for r.n.Load() > 0 && r.fewer.Wait(ctx) {
		continue
	}
}

// Read implements io.Reader.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.framing.note(p[:n])
	if n > 0 && !c.handled.Load() {
		c.reads()
	}
	return n, err
}

// reads notes that a request has begun to come.
func (c *conn) reads() {
	if c.reading.CompareAndSwap(false, true) {
		c.read.n.Add(1)
	}
}

// hasRead notes that the request is with the handler, or will never be.
func (c *conn) hasRead() {
	if c.reading.CompareAndSwap(true, false) {
		c.read.n.Add(-1)
		c.read.fewer.Raise()
	}
}

type connKey struct{}

// watchRequests lets the connections know whether the handler is working on their request.
func watchRequests(srv *http.Server) {
	inner, state, handler := srv.ConnContext, srv.ConnState, srv.Handler
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if inner != nil {
			ctx = inner(ctx, c)
		}
		if own := ownConn(c); own != nil {
			ctx = context.WithValue(ctx, connKey{}, own)
		}
		return ctx
	}
	srv.ConnState = func(c net.Conn, to http.ConnState) {
		if own := ownConn(c); own != nil {
			own.follow(to)
		}
		if state != nil {
			state(c, to)
		}
	}
	srv.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if own, ok := r.Context().Value(connKey{}).(*conn); ok {
			own.handled.Store(true)
			own.hasRead()
			own.settled()
			if own.framing.refuses(w, r) {
				return
			}
		}
		handler.ServeHTTP(w, r)
	})
}

// follow follows the connection's states.
func (c *conn) follow(to http.ConnState) {
	switch to {
	case http.StateIdle: // the answer is sent whole
		c.handled.Store(false)
	case http.StateActive:
		if !c.handled.Load() {
			c.reads()
		}
	case http.StateClosed, http.StateHijacked:
		c.hasRead()
		c.settled()
	default:
	}
}

func ownConn(c net.Conn) *conn {
	switch c := c.(type) {
	case *conn:
		return c
	case secureConn:
		return c.conn
	}
	return nil
}

// Write implements io.Writer.
func (c *conn) Write(p []byte) (int, error) {
	if c.handled.Load() {
		return c.Conn.Write(p)
	}
	answer, ok := asProblem(p)
	if !ok {
		return c.Conn.Write(p)
	}
	if _, err := c.Conn.Write(answer); err != nil {
		return 0, err
	}
	return len(p), nil
}

// NetConn returns the connection below.
func (c *conn) NetConn() net.Conn {
	if secure, ok := c.Conn.NetConn().(*tls.Conn); ok {
		return secure.NetConn()
	}
	return c.Conn.NetConn()
}

// secureConn exposes its TLS state to net/http.
type secureConn struct {
	*conn
	secure *tls.Conn
}

// ConnectionState returns the state for http.Request.TLS.
func (c secureConn) ConnectionState() tls.ConnectionState { return c.secure.ConnectionState() }

// asProblem returns an answer of net/http's in the form of all others.
func asProblem(given []byte) ([]byte, bool) {
	line, _, _ := bytes.Cut(given, []byte("\r\n"))
	rest, ok := strings.CutPrefix(string(line), "HTTP/1.1 ")
	code, text, _ := strings.Cut(rest, " ")
	status, err := strconv.Atoi(code)
	if !ok || err != nil || status < http.StatusBadRequest {
		return nil, false
	}
	e := of(status, text)
	e.RequestID = uuid.NewString()
	body, err := json.Marshal(e)
	if err != nil {
		return nil, false
	}
	var answer bytes.Buffer
	_, _ = fmt.Fprintf(&answer, "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n%s: %s\r\nConnection: close\r\n\r\n%s\n",
		status, http.StatusText(status), problem.ContentType, len(body)+1, problem.RequestIDHeader, e.RequestID, body)
	return answer.Bytes(), true
}

// of returns the problem for a status of net/http, and a text with more detail.
func of(status int, text string) *problem.Error {
	_, why, more := strings.Cut(text, ": ")
	switch {
	case status == http.StatusRequestHeaderFieldsTooLarge:
		return problem.New(status, problem.TooLarge, "send fewer and shorter headers", "the request's header is too large")
	case status == http.StatusNotImplemented:
		return problem.New(status, "not_supported", "send a Content-Length, or Transfer-Encoding: chunked", "the transfer encoding is not supported").
			WithField("header.Transfer-Encoding")
	case status == http.StatusExpectationFailed:
		return problem.New(status, problem.BadRequest, "send no Expect, or Expect: 100-continue", "the expectation is not supported").
			WithField("header.Expect")
	case strings.Contains(why, "Host header"):
		return problem.New(status, problem.BadRequest, "send one Host header", "%s", why).WithField("header.Host")
	case more:
		return problem.New(status, problem.BadRequest, "send a request as HTTP/1.1 or HTTP/2 says", "%s", why)
	}
	return problem.New(status, problem.BadRequest, "send a request as HTTP/1.1 or HTTP/2 says", "the request cannot be read")
}
