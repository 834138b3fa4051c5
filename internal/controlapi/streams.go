package controlapi

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync/atomic"
)

// AgentPaths is the prefix of the paths of calls that an agent makes with its certificate. They are
// also served in its tunnel.
const AgentPaths = "/v1/agent/"

// Streams are a second way to the control plane's API, by something that has proven both ends to
// each other already.
type Streams interface {
	// Settle returns when it is worth asking for a stream, or no use to wait for that any longer.
	Settle(ctx context.Context)
	// DialAPI opens a stream that carries HTTP/1.1. It fails at once if there is none, or none that
	// proves the current certificate.
	DialAPI(ctx context.Context) (net.Conn, error)
}

// callRoute is the route that a call takes, over all of its attempts.
type callRoute struct{ direct atomic.Bool }

type callRouteKey struct{}

// streamTransport is a transport that prefers streams, and uses separate connections if there is
// none. After a stream or its control plane has failed, the call uses a direct connection: a dead
// session may take a while to be detected, and another control plane may work.
type streamTransport struct {
	*rotatingTransport
	streams Streams
	over    *http.Transport
}

func newStreamTransport(direct *rotatingTransport, streams Streams) *streamTransport {
	return &streamTransport{rotatingTransport: direct, streams: streams, over: &http.Transport{
		DialTLSContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if s, ok := ctx.Value(openedKey{}).(*opened); ok {
				return s.take()
			}
			return nil, errTaken
		},
		// A stream costs less than keeping one, at both ends.
		DisableKeepAlives: true, ResponseHeaderTimeout: attemptTime,
	}}
}

// RoundTrip implements http.RoundTripper.
func (t *streamTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	chosen, ok := r.Context().Value(callRouteKey{}).(*callRoute)
	if !ok || t.streams == nil || chosen.direct.Load() {
		return t.rotatingTransport.RoundTrip(r)
	}
	conn, err := t.streams.DialAPI(r.Context())
	if err != nil {
		return t.rotatingTransport.RoundTrip(r)
	}
	stream := &opened{conn: conn}
	defer stream.drop()
	resp, err := t.over.RoundTrip(r.WithContext(context.WithValue(r.Context(), openedKey{}, stream)))
	if err != nil || resp.StatusCode >= http.StatusInternalServerError {
		chosen.direct.Store(true)
	}
	return resp, err
}

// opened is a stream on its way into a transport, which asks for it once, and perhaps not at all.
type opened struct {
	conn  net.Conn
	taken atomic.Bool
}

type openedKey struct{}

var errTaken = errors.New("there is no stream for this call")

func (o *opened) take() (net.Conn, error) {
	if o.taken.Swap(true) {
		return nil, errTaken
	}
	return o.conn, nil
}

func (o *opened) drop() {
	if !o.taken.Swap(true) {
		_ = o.conn.Close()
	}
}
