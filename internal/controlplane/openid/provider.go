// Package openid signs operators in by OpenID Connect, and keeps ID tokens from being used twice.
package openid

import (
	"context"
	"crypto/rand"
	"errors"
	"net/url"

	"github.com/pipeops/pipeops-vm-agent/internal/idtoken"
)

// Provider is the identity provider of operators.
type Provider struct {
	cfg    Config
	back   string
	client *idtoken.Client
}

// New returns the provider, which is one of the issuers. The address is that to which it sends
// browsers back.
func New(cfg Config, back string, issuers *idtoken.Issuers) *Provider {
	p := &Provider{cfg: cfg, back: back}
	p.client = &idtoken.Client{
		Issuers: issuers, Issuer: cfg.Issuer, ID: cfg.ClientID, Secret: p.secret, Scopes: cfg.Scopes,
		Again: fixAgain, Later: "try again in a moment, or sign in with `pipeops-controlplane console`",
	}
	return p
}

func (p *Provider) secret() (string, error) {
	secret, err := p.cfg.secret()
	if err != nil {
		err = errors.New("this control plane cannot read the client's secret (--openid-client-secret-file)")
	}
	return secret, err
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
	secret = rand.Text()
	address, err = p.Address(ctx, "", secret)
	return address, secret, err
}

// Address returns the address to which a browser is sent for a sign-in with this secret, which no
// other sign-in has. The state begins with note.
func (p *Provider) Address(ctx context.Context, note, secret string) (string, error) {
	l := idtoken.LoginOf(secret)
	return p.client.AuthorizeURL(ctx, p.back, note+l.State, l.Nonce, l.Challenge())
}
