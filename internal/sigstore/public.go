package sigstore

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/tuf"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/theupdateframework/go-tuf/v2/metadata/fetcher"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// rootFor is how long a fetched root of trust is used, and until when if it cannot be fetched.
const (
	rootFor   = 24 * time.Hour
	rootUntil = 7 * rootFor
	// patience bounds a fetch, and failedFor is until when another one is not tried: one commit or
	// image may have many signers, which each need the root.
	patience  = 15 * time.Second
	failedFor = time.Minute
)

// Mirror is where a root of trust is published by TUF.
type Mirror struct {
	URL  string
	Root []byte // the first root.json
}

// Public is the root of trust of the public Sigstore.
type Public struct {
	mirror    Mirror
	transport http.RoundTripper
	now       func() time.Time

	turn     chan struct{} // its holder fetches, and may use the fields below
	verifier *verify.Verifier
	at       time.Time
	failure  error // of the newest fetch
	failedAt time.Time
}

// NewPublic returns the root of trust, which it fetches when it is needed. The zero Mirror is the
// public one.
func NewPublic(transport http.RoundTripper, now func() time.Time, mirror Mirror) *Public {
	if mirror.URL == "" {
		mirror = Mirror{URL: tuf.DefaultMirror, Root: tuf.DefaultRoot()}
	}
	return &Public{mirror: mirror, transport: transport, now: now, turn: make(chan struct{}, 1)}
}

// maxCause bounds what an error says of its cause, in bytes.
const maxCause = 300

// RootError is why there is no root of trust.
type RootError struct {
	mirror string
	err    error
}

func (e *RootError) Error() string {
	return "Sigstore's root of trust cannot be fetched from " + e.mirror + ": " + printable.Shorten(printable.Text(e.err.Error()), maxCause)
}

// Unwrap returns the cause.
func (e *RootError) Unwrap() error { return e.err }

// Fix is what to do about it.
func (e *RootError) Fix() string {
	return "let the agent reach the public Sigstore, or have the owner of the cluster set trustedRoot in the policy"
}

// Verifier returns what verifies keyless signatures of the public Sigstore. Its error is a
// *RootError.
func (p *Public) Verifier(ctx context.Context) (*verify.Verifier, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, &RootError{p.mirror.URL, ctx.Err()}
	}
	age := p.now().Sub(p.at)
	if p.verifier != nil && age < rootFor {
		return p.verifier, nil
	}
	err := p.refresh(ctx)
	if err != nil && (p.verifier == nil || age > rootUntil) {
		return nil, &RootError{p.mirror.URL, err}
	}
	return p.verifier, nil
}

// refresh fetches the root, unless that failed a moment ago.
func (p *Public) refresh(ctx context.Context) error {
	if p.failure != nil && p.now().Sub(p.failedAt) < failedFor {
		return p.failure
	}
	v, err := p.fetch(ctx)
	if err == nil {
		p.verifier, p.at = v, p.now()
	}
	if err == nil || !errors.Is(ctx.Err(), context.Canceled) { // the caller's leaving is no failure
		p.failure, p.failedAt = err, p.now()
	}
	return err
}

func (p *Public) fetch(ctx context.Context) (*verify.Verifier, error) {
	f := &fetcher.DefaultFetcher{}
	f.SetHTTPClient(&http.Client{Transport: during{ctx, p.transport}})
	f.SetRetry(0, 1)
	client, err := tuf.New(&tuf.Options{Root: p.mirror.Root, RepositoryBaseURL: p.mirror.URL, DisableLocalCache: true, Fetcher: f})
	if err != nil {
		return nil, err
	}
	material, err := root.GetTrustedRoot(client)
	if err != nil {
		return nil, err
	}
	return NewVerifier(material)
}

// during ends requests with a context: go-tuf has none. It bounds answers by itself.
type during struct {
	ctx  context.Context //nolint:containedctx // of one fetch
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (d during) RoundTrip(r *http.Request) (*http.Response, error) {
	return d.next.RoundTrip(r.WithContext(d.ctx))
}
