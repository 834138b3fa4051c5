// Package unsent sends HTTP requests again of which nothing was sent: the connection that was kept
// from an earlier request had ended. net/http does so for requests without a body alone.
package unsent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"

	"github.com/pipeops/pipeops-vm-agent/internal/wrapconn"
)

// attempts bounds how often a request is tried: each may meet another connection that has ended,
// but for the last, which meets none that was kept.
const attempts = 4

// Transport is an http.Transport of HTTP/1.1. Its DialContext is that of New.
type Transport struct{ *http.Transport }

// New wraps the transport's DialContext, which must be set.
func New(t *http.Transport) *Transport {
	dial := t.DialContext
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: wrapconn.Conn{Conn: conn}}, nil
	}
	return &Transport{t}
}

// RoundTrip implements http.RoundTripper.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	var body *heldBody
	if r.Body != nil && r.Body != http.NoBody {
		body = &heldBody{ReadCloser: r.Body}
	}
	for attempt := 1; ; attempt++ {
		if attempt == attempts {
			t.CloseIdleConnections()
		}
		var used *use
		out := r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
			if conn, ok := got.Conn.(*countedConn); ok {
				used = &use{conn, conn.written()}
				if got.Reused && wrapconn.Ended(conn.Conn) { // net/http may not have read its end yet
					conn.seal()
				}
				if body != nil {
					body.used.Store(used)
				}
			}
		}}))
		if body != nil {
			out.Body = body
		}
		resp, err := t.Transport.RoundTrip(out)
		if err == nil {
			return resp, nil
		}
		again := attempt < attempts && r.Context().Err() == nil && used != nil && used.endUnsent()
		if !again || body != nil && !body.rewind() {
			if body != nil {
				_ = r.Body.Close()
			}
			return nil, err
		}
	}
}

// use is a request's use of a connection.
type use struct {
	conn   *countedConn
	before int64
}

func (u *use) sent() bool { return u.conn.written() != u.before }

// endUnsent reports whether nothing was sent. Then nothing will be, either.
func (u *use) endUnsent() bool { return u.conn.seal() == u.before }

// countedConn counts what was written to it.
type countedConn struct {
	wrapconn.Conn
	mu     sync.Mutex
	bytes  int64
	sealed bool
}

// Write implements io.Writer.
func (c *countedConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	if c.sealed {
		c.mu.Unlock()
		return 0, net.ErrClosed
	}
	c.bytes += int64(len(p)) // a write that has begun may arrive
	c.mu.Unlock()
	n, err := c.Conn.Write(p)
	if n == 0 && err != nil {
		c.mu.Lock()
		c.bytes -= int64(len(p))
		c.mu.Unlock()
	}
	return n, err
}

func (c *countedConn) written() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

func (c *countedConn) seal() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sealed = true
	return c.bytes
}

// maxHeld bounds how much of a body is kept: as much as the transport gathers before it sends.
const maxHeld = 128 << 10

// heldBody is a request's body. It keeps what was read of it until something is sent.
type heldBody struct {
	io.ReadCloser
	used    atomic.Pointer[use]
	reading atomic.Bool

	again   io.Reader // what was read before
	kept    bytes.Buffer
	dropped bool // not all is kept
	err     error
}

// Read implements io.Reader.
func (b *heldBody) Read(p []byte) (n int, err error) {
	b.reading.Store(true)
	defer b.reading.Store(false)
	if b.again != nil {
		if n, err = b.again.Read(p); err == nil {
			return n, nil
		}
		b.again = nil
	}
	if b.err != nil {
		return 0, b.err
	}
	n, err = b.ReadCloser.Read(p)
	b.err = err
	used := b.used.Load()
	if b.dropped = b.dropped || used == nil || used.sent() || b.kept.Len()+n > maxHeld; b.dropped {
		b.kept = bytes.Buffer{}
		return n, err
	}
	b.kept.Write(p[:n])
	return n, err
}

// rewind makes the body be read from its beginning again, if all of it is kept. The transport waits
// for its reads before it fails, but for the one by which it looks whether there is a body at all.
func (b *heldBody) rewind() bool {
	if b.reading.Load() || b.dropped || b.err != nil && !errors.Is(b.err, io.EOF) {
		return false
	}
	b.again = bytes.NewReader(bytes.Clone(b.kept.Bytes()))
	return true
}

// Close implements io.Closer. A body of which nothing was sent stays open.
func (b *heldBody) Close() error {
	if used := b.used.Load(); used == nil || !used.sent() {
		return nil
	}
	return b.ReadCloser.Close()
}
