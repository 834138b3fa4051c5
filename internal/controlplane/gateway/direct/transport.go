package direct

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
)

const (
	idleConnections = 64
	idleFor         = 45 * time.Second
	maxHeader       = 64 << 10
	copyBuffer      = 32 << 10
	// pingAfter is after which silence an HTTP/2 connection is tried, and pingTimeout how long.
	pingAfter, pingTimeout = 15 * time.Second, 5 * time.Second
)

// link has the connections to an endpoint while it answers. They do not outlive that: after a
// failure there are others.
type link struct {
	// lost ends when the endpoint ceases to answer.
	lost context.Context
	lose context.CancelCauseFunc
	// How long an App may take to begin its answer is the cluster's load balancer's to say.
	http1, http2 *http.Transport
}

func newLink(t *target) *link {
	l := &link{}
	l.lost, l.lose = context.WithCancelCause(context.Background())
	l.http1, l.http2 = newTransport(t, "http/1.1"), newTransport(t, "h2")
	l.http1.Protocols.SetHTTP1(true)
	l.http2.Protocols.SetHTTP2(true)
	l.http2.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	return l
}

func newTransport(t *target, protocol string) *http.Transport {
	return &http.Transport{
		DialTLSContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			name, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return t.connect(ctx, name, protocol)
		},
		MaxIdleConnsPerHost: idleConnections, IdleConnTimeout: idleFor, DisableCompression: true,
		ExpectContinueTimeout: time.Second, MaxResponseHeaderBytes: maxHeader,
		WriteBufferSize: copyBuffer, ReadBufferSize: copyBuffer, Protocols: new(http.Protocols),
	}
}

// end lets requests whose answer has begun finish, and cancels those that may be sent again.
func (l *link) end(err error) {
	l.lose(err)
	l.http1.CloseIdleConnections()
	l.http2.CloseIdleConnections()
}

// during returns a context that ends with the link too, until stop is called.
func (l *link) during(parent context.Context) (ctx context.Context, stop func() bool) {
	ctx, cancel := context.WithCancel(parent)
	return ctx, context.AfterFunc(l.lost, cancel)
}

// Way is how a host is reached directly.
type Way struct {
	host *host
	link *link
}

// RoundTrip sends a request. If there is no answer, unsent reports that the request may be sent
// another way: the endpoint has not received it, or receiving it twice does no harm. The request's
// body is left open then, and was not read.
func (w *Way) RoundTrip(r *http.Request) (resp *http.Response, unsent bool, err error) {
	repeatable := isSafe(r)
	ctx, stop := r.Context(), func() bool { return true }
	if repeatable {
		ctx, stop = w.link.during(ctx)
	}
	out := r.Clone(ctx)
	out.Trailer = r.Trailer // it is filled as the body ends
	out.URL.Scheme, out.URL.Host = "https", w.host.Name
	out.Header.Add(gatewaywire.HeaderLoop, gatewaywire.LoopID)
	body := &lentBody{ReadCloser: r.Body}
	if r.Body != nil && r.Body != http.NoBody {
		out.Body = body
	}
	resp, err = w.transport(r).RoundTrip(out)
	if err == nil {
		stop() // the answer may be long
		resp.Header.Del(gatewaywire.HeaderFailed)
		return resp, false, nil
	}
	if r.Context().Err() != nil {
		return nil, false, err
	}
	return nil, w.failed(err, repeatable) && !body.read.Load(), err
}

// failed notes a failure, and reports whether the request may be sent another way.
func (w *Way) failed(err error, repeatable bool) bool {
	var (
		none   unsentError
		silent unreachableError
		late   net.Error
	)
	t := w.host.target
	switch {
	case errors.As(err, &silent):
		t.fall(w.link, err)
		return true
	case errors.As(err, &none):
		w.host.doubt()
		return true
	case repeatable && w.link.lost.Err() != nil:
		return true
	case errors.As(err, &late) && late.Timeout():
		return false // the App is slow, or a body is
	}
	t.hurry()
	return repeatable
}

// doubt has a host proven again before it is used.
func (h *host) doubt() {
	h.proven.Store(false)
	h.target.mu.Lock()
	h.next, h.reason = time.Time{}, errKey.Error()
	h.target.mu.Unlock()
	h.target.look.Raise()
	h.target.p.cfg.Changed()
}

func (w *Way) transport(r *http.Request) *http.Transport {
	if gatewaywire.IsGRPC(r.Header) {
		return w.link.http2
	}
	return w.link.http1
}

// isSafe reports whether a request may be sent twice (RFC 9110, 9.2.1).
func isSafe(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return r.Body == nil || r.Body == http.NoBody
	}
	return false
}

// lentBody is a request's body that stays open, and that is known to be unread.
type lentBody struct {
	io.ReadCloser
	read atomic.Bool
}

// Read implements io.Reader.
func (b *lentBody) Read(p []byte) (int, error) {
	b.read.Store(true)
	return b.ReadCloser.Read(p)
}

// Close implements io.Closer.
func (b *lentBody) Close() error { return nil }
