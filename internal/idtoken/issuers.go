// Package idtoken verifies ID tokens of OpenID Connect, and obtains them in the authorization code
// flow with PKCE, state and nonce. What a person may do is not decided here.
package idtoken

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/internal/tlsfiles"
)

const (
	// callTimeout bounds a call of an issuer.
	callTimeout = 10 * time.Second
	// discoveryPause is the least time between two attempts to reach an issuer that is away.
	discoveryPause = 2 * time.Second
	// maxAnswer bounds an answer of an issuer, in bytes.
	maxAnswer = 1 << 20
)

// algorithms are those by which ID tokens may be signed: with a private key that the issuer alone
// has.
var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
}

// Issuers are issuers of ID tokens. Each is asked about itself when it is first needed, since it
// may be away before. Its keys are kept, and read again for a token with another key.
type Issuers struct {
	client *http.Client
	now    func() time.Time

	mu    sync.Mutex
	known map[string]*issuer
}

// issuer is one issuer.
type issuer struct {
	turn   chan struct{} // guards what follows
	found  *discovered
	failed error
	again  time.Time // no attempt before
}

// discovered is what an issuer says about itself.
type discovered struct {
	*oidc.Provider
	keys   oidc.KeySet
	scopes []string // those that it lists; nil if it lists none
}

// AwayError reports that an issuer cannot be used now: a token of it was neither accepted nor
// refused.
type AwayError struct{ Err error }

func (e *AwayError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *AwayError) Unwrap() error { return e.Err }

// NewIssuers returns the issuers that these CAs verify; nil means the machine's. Operators name
// them: they may be anywhere but at a metadata service.
func NewIssuers(cas tlsfiles.Source, now func() time.Time) *Issuers {
	transport := proxy.FromEnvironment().Use(http.DefaultTransport.(*http.Transport).Clone())
	transport.DialContext = (&net.Dialer{Timeout: callTimeout, Control: noMetadata}).DialContext
	return NewIssuersBy(tlsfiles.NewTransport(transport, cas), now)
}

// NewIssuersBy is like NewIssuers with a transport that decides where issuers may be.
func NewIssuersBy(transport http.RoundTripper, now func() time.Time) *Issuers {
	return &Issuers{
		now: now, known: map[string]*issuer{},
		client: &http.Client{Timeout: callTimeout, Transport: bounded{transport}},
	}
}

// noMetadata is a net.Dialer's Control: operators name issuers, and metadata services have the
// machine's credentials.
func noMetadata(_, address string, _ syscall.RawConn) error {
	to, err := netip.ParseAddrPort(address)
	if err == nil && egress.IsMetadata(to.Addr()) {
		err = fmt.Errorf("%s is a link-local, metadata or multicast address", to.Addr())
	}
	return err
}

// bounded bounds answers, and refuses what is not encrypted, also after a redirect.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme != "https" {
		return nil, fmt.Errorf("%.200q is not an https address", r.URL.String())
	}
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}

// ValidIssuer reports whether a text can be an issuer: https://HOST[:PORT][/PATH].
func ValidIssuer(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
}

// find returns what an issuer says about itself. Callers take turns.
func (i *Issuers) find(ctx context.Context, name string) (*discovered, error) {
	at := i.of(name)
	select {
	case at.turn <- struct{}{}:
		defer func() { <-at.turn }()
	case <-ctx.Done():
		return nil, &AwayError{ctx.Err()}
	}
	if at.found != nil || at.failed != nil && i.now().Before(at.again) {
		return at.found, at.failed
	}
	at.found, at.failed = nil, nil
	found, err := i.ask(ctx, name)
	if err != nil {
		at.failed, at.again = &AwayError{err}, i.now().Add(discoveryPause)
		return nil, at.failed
	}
	at.found = found
	return found, nil
}

func (i *Issuers) of(name string) *issuer {
	i.mu.Lock()
	defer i.mu.Unlock()
	at, known := i.known[name]
	if !known {
		at = &issuer{turn: make(chan struct{}, 1)}
		i.known[name] = at
	}
	return at
}

func (i *Issuers) ask(ctx context.Context, name string) (*discovered, error) {
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, i.client), callTimeout)
	defer cancel()
	provider, err := oidc.NewProvider(ctx, name)
	if err != nil {
		return nil, err
	}
	var said struct {
		Keys   string   `json:"jwks_uri"`
		Scopes []string `json:"scopes_supported"`
	}
	if err := provider.Claims(&said); err != nil {
		return nil, err
	}
	return &discovered{provider, oidc.NewRemoteKeySet(ctx, said.Keys), said.Scopes}, nil
}

// Verify verifies an ID token of an issuer for an audience. Its errors never have the token. An
// AwayError says that the issuer could not be asked.
func (i *Issuers) Verify(ctx context.Context, name, audience, raw string) (*oidc.IDToken, error) {
	found, err := i.find(ctx, name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	keys := &watchedKeys{KeySet: found.keys}
	token, err := verify(ctx, keys, name, audience, raw, i.now)
	if err != nil && keys.away != nil {
		return nil, &AwayError{keys.away}
	}
	return token, err
}

// watchedKeys records that the keys could not be read. The verifier's error has only the text of
// that.
type watchedKeys struct {
	oidc.KeySet
	away error
}

// VerifySignature implements oidc.KeySet.
func (k *watchedKeys) VerifySignature(ctx context.Context, raw string) ([]byte, error) {
	payload, err := k.KeySet.VerifySignature(ctx, raw)
	if errors.Unwrap(err) != nil { // a wrong signature has no cause
		k.away = err
	}
	return payload, err
}
