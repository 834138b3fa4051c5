// Package openid signs operators in by OpenID Connect: the authorization code flow with PKCE, state
// and nonce.
package openid

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/internal/tlsfiles"
)

const (
	// callTimeout bounds a call of the identity provider.
	callTimeout = 10 * time.Second
	// discoveryPause is the least time between two attempts to reach an identity provider that is
	// away.
	discoveryPause = 2 * time.Second
	// maxAnswer bounds an answer of the identity provider, in bytes.
	maxAnswer = 1 << 20
)

// Provider is the identity provider. It is asked about itself when it is first needed, since it may
// be away when the control plane starts.
type Provider struct {
	cfg    Config
	now    func() time.Time
	back   string
	client *http.Client

	turn   chan struct{} // guards what follows
	found  *discovered
	failed error
	again  time.Time // no attempt before
}

// discovered is what the provider says about itself.
type discovered struct {
	oauth    oauth2.Config // without the client's secret
	verifier *oidc.IDTokenVerifier

	mu     sync.Mutex
	secret *oauth2.Config // with the secret of the last sign-in; it knows how the provider takes it
}

// client returns the configuration with a secret.
func (d *discovered) client(secret string) *oauth2.Config {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.secret == nil || d.secret.ClientSecret != secret {
		next := d.oauth
		next.ClientSecret = secret
		d.secret = &next
	}
	return d.secret
}

// New returns the provider. The address is that to which it sends browsers back.
func New(cfg Config, back string, now func() time.Time) *Provider {
	transport := proxy.FromEnvironment().Use(http.DefaultTransport.(*http.Transport).Clone())
	return &Provider{
		cfg: cfg, now: now, back: back, turn: make(chan struct{}, 1),
		client: &http.Client{Timeout: callTimeout, Transport: bounded{tlsfiles.NewTransport(transport, cfg.TLS)}},
	}
}

// bounded bounds answers.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer)
	}
	return resp, err
}

// Name is the provider's, for people.
func (p *Provider) Name() string {
	u, err := url.Parse(p.cfg.Issuer)
	if err != nil {
		return p.cfg.Issuer
	}
	return u.Host
}

// Begin returns the address to which the browser is sent, and the secret that it keeps until it
// returns.
func (p *Provider) Begin(ctx context.Context) (address, secret string, err error) {
	found, err := p.discover(ctx)
	if err != nil {
		return "", "", err
	}
	secret = rand.Text()
	l := loginOf(secret)
	return found.oauth.AuthCodeURL(l.state, oidc.Nonce(l.nonce), oauth2.S256ChallengeOption(l.verifier)), secret, nil
}

// discover returns what the provider says about itself. Callers take turns.
func (p *Provider) discover(ctx context.Context) (*discovered, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return nil, p.away(ctx.Err())
	}
	if p.found != nil || p.failed != nil && p.now().Before(p.again) {
		return p.found, p.failed
	}
	p.found, p.failed = nil, nil
	found, err := p.ask(ctx)
	if err != nil {
		p.failed, p.again = p.away(err), p.now().Add(discoveryPause)
		return nil, p.failed
	}
	p.found = found
	return found, nil
}

func (p *Provider) ask(ctx context.Context) (*discovered, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, p.client), p.cfg.Issuer)
	if err != nil {
		return nil, err
	}
	at := provider.Endpoint()
	for _, address := range []string{at.AuthURL, at.TokenURL} {
		if u, err := url.Parse(address); err != nil || u.Scheme != "https" {
			return nil, fmt.Errorf("its endpoint %.200q is not an https address", address)
		}
	}
	return &discovered{
		oauth: oauth2.Config{
			ClientID: p.cfg.ClientID, Endpoint: at, RedirectURL: p.back,
			Scopes: append([]string{oidc.ScopeOpenID}, p.cfg.Scopes...),
		},
		verifier: provider.Verifier(&oidc.Config{ClientID: p.cfg.ClientID, Now: p.now}),
	}, nil
}

// away returns the error of a provider that cannot be used now.
func (p *Provider) away(err error) error {
	return problem.Errorf(problem.Unavailable, "try again in a moment, or sign in with `pipeops-controlplane console`",
		"the identity provider %s cannot be used: %s", p.cfg.Issuer, short(cmp.Or(err, context.DeadlineExceeded).Error()))
}

// short bounds a text that another program has made.
func short(text string) string {
	const most = 300
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
