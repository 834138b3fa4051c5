package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxMirrored is how many copies of requests one replica has in progress, from the first byte
	// of a body on; those beyond are not sent. maxMirroredBody bounds the body of a request that is
	// copied, and mirrorTimeout how long a copy may take.
	maxMirrored     = 64
	maxMirroredBody = 64 << 10
	mirrorTimeout   = 10 * time.Second
)

// Mirror is a Service that gets copies of requests. What it answers is dropped.
type Mirror struct {
	Addresses []string
	HTTP2     bool
	// Share of Of requests are copied.
	Share, Of int
}

// mirrors are the copies in progress.
type mirrors struct {
	ctx    context.Context // ends with the Handler
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	running int
	done    sync.WaitGroup
}

func newMirrors() *mirrors {
	m := &mirrors{}
	m.ctx, m.cancel = context.WithCancel(context.Background())
	return m
}

// enter takes a place for a copy, unless there is none.
func (m *mirrors) enter() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.running >= maxMirrored {
		return false
	}
	m.running++
	return true
}

// leave gives places back.
func (m *mirrors) leave(places int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running -= places
}

// run runs f, and gives its place back after it.
func (m *mirrors) run(f func(context.Context)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		m.running--
		return
	}
	m.done.Go(func() {
		defer m.leave(1)
		ctx, cancel := context.WithTimeout(m.ctx, mirrorTimeout)
		defer cancel()
		f(ctx)
	})
}

// close ends all copies and waits for them.
func (m *mirrors) close() {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	m.cancel()
	m.done.Wait()
}

// mirror copies a request, as a backend is about to get it, to the mirrors of its route. Bodies are
// copied as the backend reads them, so that it waits for nothing. A connection that is upgraded has
// no copy.
func (h *Handler) mirror(out *http.Request, all []Mirror) {
	if out.ContentLength > maxMirroredBody || out.Header.Get("Upgrade") != "" {
		return
	}
	var to []Mirror
	for _, m := range all {
		if len(m.Addresses) > 0 && rand.IntN(m.Of) < m.Share && h.mirrors.enter() { //nolint:gosec // a sample needs no secrecy
			to = append(to, m)
		}
	}
	if len(to) == 0 {
		return
	}
	copied := *out
	copied.Header, copied.Trailer = out.Header.Clone(), nil
	send := func(body []byte) { //nolint:contextcheck // a copy outlives its request
		for _, m := range to {
			h.mirrors.run(func(ctx context.Context) { h.shadow(ctx, copied, m, body) })
		}
	}
	if out.Body == nil || out.Body == http.NoBody {
		send(nil)
		return
	}
	var settled atomic.Bool // the places are given back, or those of copies that are sent
	drop := func() {
		if settled.CompareAndSwap(false, true) {
			h.mirrors.leave(len(to))
		}
	}
	context.AfterFunc(out.Context(), drop)
	out.Body = &copiedBody{ReadCloser: out.Body, drop: drop, whole: func(body []byte) {
		if settled.CompareAndSwap(false, true) {
			send(body)
		}
	}}
}

// shadow sends a copy of a request to a mirror.
func (h *Handler) shadow(ctx context.Context, copied http.Request, m Mirror, body []byte) {
	addresses := shuffled(m.Addresses)
	address, others := addresses[0], addresses[1:]
	to := target{address: address, others: others, http2: m.HTTP2, within: mirrorTimeout, limited: true}
	r := copied.WithContext(context.WithValue(ctx, targetKey{}, to))
	url := *copied.URL
	url.Host = address
	r.URL, r.ContentLength, r.TransferEncoding, r.Body = &url, int64(len(body)), nil, http.NoBody
	if len(body) > 0 {
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	resp, err := h.transports.RoundTrip(r)
	if err != nil {
		h.log.Debug().Err(err).Str("host", r.Host).Msg("failed to send the copy of a request to its mirror")
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, maxMirroredBody))
	_ = resp.Body.Close()
}

// copiedBody is a body that is kept until its end, unless it is large.
type copiedBody struct {
	io.ReadCloser
	whole func([]byte) // called with the body once it has ended
	drop  func()       // called if it is not kept
	kept  []byte
	ended bool
}

// Read implements io.Reader.
func (b *copiedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case b.ended:
	case len(b.kept)+n > maxMirroredBody || err != nil && !errors.Is(err, io.EOF):
		b.ended, b.kept = true, nil
		b.drop()
	default:
		b.kept = append(b.kept, p[:n]...)
		if err != nil {
			b.ended = true
			b.whole(b.kept)
		}
	}
	return n, err
}
