package gateway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

const (
	// maxMirrored is how many copies of requests one replica has in progress; those beyond are not
	// sent. maxMirroredBody bounds the body of a request that is copied, and mirrorTimeout how long
	// a copy may take.
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

// run runs f unless there is no room for it.
func (m *mirrors) run(f func(context.Context)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || m.running >= maxMirrored {
		return
	}
	m.running++
	m.done.Go(func() {
		ctx, cancel := context.WithTimeout(m.ctx, mirrorTimeout)
		defer cancel()
		f(ctx)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.running--
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
func (h *Handler) mirror(out *http.Request, to []Mirror) {
	if out.ContentLength > maxMirroredBody || out.Header.Get("Upgrade") != "" {
		return
	}
	for _, m := range to {
		if len(m.Addresses) == 0 || rand.IntN(m.Of) >= m.Share { //nolint:gosec // a sample needs no secrecy
			continue
		}
		shadow := *out
		shadow.Header, shadow.Trailer = out.Header.Clone(), nil
		if out.Body == nil || out.Body == http.NoBody {
			h.mirrors.run(func(ctx context.Context) { h.shadow(ctx, shadow, m, nil) })
			continue
		}
		out.Body = &copiedBody{ReadCloser: out.Body, whole: func(body []byte) {
			h.mirrors.run(func(ctx context.Context) { h.shadow(ctx, shadow, m, body) })
		}}
	}
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
	resp, err := h.RoundTrip(r)
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
	whole func([]byte)
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
	default:
		b.kept = append(b.kept, p[:n]...)
		if err != nil {
			b.ended = true
			b.whole(b.kept)
		}
	}
	return n, err
}
