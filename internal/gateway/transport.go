package gateway

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/unsent"
)

const (
	dialTimeout = 5 * time.Second
	// refusedFor is how long a Service is tried that refuses connections, and firstPause and
	// lastPause are the times between two attempts.
	refusedFor            = 2 * time.Second
	firstPause, lastPause = 5 * time.Millisecond, 200 * time.Millisecond
	// idleBackends is how many connections to one Service stay open between requests, and idleFor
	// how long. That is shorter than servers keep them, which is 2 s at least: a server that closes
	// one loses the request that is on its way.
	idleBackends = 64
	idleFor      = time.Second
	copyBuffer   = 32 << 10
)

// transports send requests to Services.
type transports struct {
	http1, limited sync.Map // by the time for the answer: of *unsent.Transport, and of *http.Transport for HTTP/2
	http2          *http.Transport
}

func newTransports() *transports {
	t := &transports{http2: transport()}
	t.http2.Protocols.SetUnencryptedHTTP2(true)
	return t
}

// close closes the connections that are not in use.
func (t *transports) close() {
	t.http1.Range(func(_, of any) bool {
		of.(*unsent.Transport).CloseIdleConnections()
		return true
	})
	t.limited.Range(func(_, of any) bool {
		of.(*http.Transport).CloseIdleConnections()
		return true
	})
	t.http2.CloseIdleConnections()
}

// http1Within returns the transport for Services that may take so long to begin their answers.
// Routes have tenths of a second up to ten seconds, and whole seconds up to an hour.
func (t *transports) http1Within(within time.Duration) *unsent.Transport {
	if known, ok := t.http1.Load(within); ok {
		return known.(*unsent.Transport)
	}
	made := transport()
	made.Protocols.SetHTTP1(true)
	made.ResponseHeaderTimeout = within
	kept, _ := t.http1.LoadOrStore(within, unsent.New(made))
	return kept.(*unsent.Transport)
}

// http2Within is http1Within for Services that speak HTTP/2, and whose route limits them.
func (t *transports) http2Within(within time.Duration) *http.Transport {
	if known, ok := t.limited.Load(within); ok {
		return known.(*http.Transport)
	}
	made := transport()
	made.Protocols.SetUnencryptedHTTP2(true)
	made.ResponseHeaderTimeout = within
	kept, _ := t.limited.LoadOrStore(within, made)
	return kept.(*http.Transport)
}

func transport() *http.Transport {
	return &http.Transport{
		DialContext: dial, MaxIdleConnsPerHost: idleBackends, IdleConnTimeout: idleFor, DisableCompression: true,
		ExpectContinueTimeout: time.Second, MaxResponseHeaderBytes: maxHeader, Protocols: new(http.Protocols),
		WriteBufferSize: copyBuffer, ReadBufferSize: copyBuffer,
	}
}

// dial connects to a Service.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address)
	if err != nil {
		return nil, notReadyError{err}
	}
	return conn, nil
}

// notReadyError means that a Service accepts no connection.
type notReadyError struct{ error }

func (e notReadyError) Unwrap() error { return e.error }

// refused reports whether another pod may take the connection: this one has ended, and the cluster
// still leads to it.
func (e notReadyError) refused() bool {
	return errors.Is(e, syscall.ECONNREFUSED) || errors.Is(e, syscall.EHOSTUNREACH)
}

// RoundTrip implements http.RoundTripper. It tries again while pods refuse the connection, though
// not for long.
func (t *transports) RoundTrip(r *http.Request) (*http.Response, error) {
	to := r.Context().Value(targetKey{}).(target)
	var by http.RoundTripper = t.http2
	switch {
	case !to.http2:
		by = t.http1Within(to.within)
	case to.limited:
		by = t.http2Within(to.within)
	}
	if r.Body != nil && r.Body != http.NoBody {
		out := *r
		out.Body = io.NopCloser(r.Body) // for the next attempt; the proxy closes it
		r = &out
	}
	var resp *http.Response
	err := tryEach(r.Context(), slices.Concat([]string{to.address}, to.others), func(address string) error {
		out, at := *r, *r.URL
		at.Host = address
		out.URL = &at
		var err error
		resp, err = by.RoundTrip(&out) //nolint:bodyclose // the caller does
		return err
	})
	return resp, err
}

// tryEach tries addresses in turns while pods refuse the connection, though not for long.
func tryEach(ctx context.Context, addresses []string, try func(address string) error) error {
	began, pause := time.Now(), retry.Backoff(firstPause, lastPause)
	for next := 0; ; next++ {
		err := try(addresses[next%len(addresses)])
		var none notReadyError
		if !errors.As(err, &none) || !none.refused() || time.Since(began) >= refusedFor || !retry.Wait(ctx, pause.NextBackOff()) {
			return err
		}
	}
}

// shuffled returns the addresses of a Service from any of them on: each gets its share.
func shuffled(addresses []string) []string {
	first := rand.IntN(len(addresses)) //nolint:gosec // spreading load needs no secrecy
	return slices.Concat(addresses[first:], addresses[:first])
}
