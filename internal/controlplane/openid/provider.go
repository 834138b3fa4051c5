// Package openid verifies ID tokens of OpenID Connect, and signs operators in by them: the
// authorization code flow with PKCE, state and nonce.
package openid

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"sync"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Provider is the identity provider of operators.
type Provider struct {
	cfg     Config
	back    string
	issuers *Issuers

	mu    sync.Mutex
	oauth *oauth2.Config // with the secret of the last sign-in; it knows how the provider takes it
}

// New returns the provider, which is one of the issuers. The address is that to which it sends
// browsers back.
func New(cfg Config, back string, issuers *Issuers) *Provider {
	return &Provider{cfg: cfg, back: back, issuers: issuers}
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
	oauth, err := p.client(ctx, "")
	if err != nil {
		return "", "", err
	}
	secret = rand.Text()
	l := loginOf(secret)
	return oauth.AuthCodeURL(l.state, oidc.Nonce(l.nonce), oauth2.S256ChallengeOption(l.verifier)), secret, nil
}

// client returns this control plane as a client of the provider, with a secret.
func (p *Provider) client(ctx context.Context, secret string) (*oauth2.Config, error) {
	found, err := p.issuers.find(ctx, p.cfg.Issuer)
	if err != nil {
		return nil, p.away(err)
	}
	at := found.Endpoint()
	for _, address := range []string{at.AuthURL, at.TokenURL} {
		if u, err := url.Parse(address); err != nil || u.Scheme != "https" {
			return nil, p.away(fmt.Errorf("its endpoint %.200q is not an https address", address))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.oauth == nil || p.oauth.ClientSecret != secret && secret != "" {
		p.oauth = &oauth2.Config{
			ClientID: p.cfg.ClientID, ClientSecret: secret, Endpoint: at, RedirectURL: p.back,
			Scopes: append([]string{oidc.ScopeOpenID}, p.cfg.Scopes...),
		}
	}
	return p.oauth, nil
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
