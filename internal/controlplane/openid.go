package controlplane

import (
	"context"
	"net/url"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/exchange"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/openid"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
)

// openIDSignIn opens sessions in the console for those whom the identity provider has identified.
type openIDSignIn struct {
	*openid.Provider
	issuer   string
	home     *url.URL
	operator *operatorapi.Server
	authn    *authn.Authenticator
}

var _ web.Elsewhere = openIDSignIn{}

// openIDSignIn returns how to sign in to the console at home by OpenID Connect, and what signs
// visitors of Apps in there; nil if operators do not sign in so, or nothing is public.
func (c *ControlPlane) openIDSignIn(home *url.URL) (web.Elsewhere, web.Visitors) {
	if !c.cfg.OpenID.Given() {
		return nil, nil
	}
	provider := openid.New(c.cfg.OpenID, home.String()+web.ReturnPath, c.issuers)
	c.authn.OpenID = c.cfg.OpenID.Digest()
	elsewhere := openIDSignIn{provider, c.cfg.OpenID.Issuer, home, c.operators, c.authn}
	if c.public == nil {
		return elsewhere, nil
	}
	c.visitors.Provider = provider
	return elsewhere, c.visitors
}

// openExchange has the API exchange ID tokens for certificates of Runners.
func (c *ControlPlane) openExchange() {
	c.api.exchange = &exchange.Exchange{Config: exchange.Config{
		Store: c.store, CA: c.ca, Issuers: c.issuers, Record: c.operators.RecordExchange, TrustDomain: c.cfg.TrustDomain, AgentsDomain: c.cfg.AgentsDomain,
		Edge: func() string { return store.SplitEdges(c.peers.Edge(c.cfg.AdvertiseEdge))[0] }, Log: c.cfg.Log, Now: c.cfg.Now,
	}}
}

// Home implements web.Elsewhere.
func (s openIDSignIn) Home() *url.URL { return s.home }

// Return implements web.Elsewhere.
func (s openIDSignIn) Return(ctx context.Context, secret string, query url.Values) (*web.Session, error) {
	person, refused := s.Finish(ctx, secret, query)
	in := operatorapi.SignIn{Operator: person.Name, Issuer: s.issuer, Subject: person.Subject, Role: person.Role}
	id := ""
	err := s.operator.RecordSignIn(ctx, in, refused, func(ctx context.Context) (err error) {
		id, err = s.authn.OpenConsole(ctx, store.Operator{Name: person.Name, Role: person.Role, ExpiresAt: person.Expires})
		return err
	})
	if err != nil {
		return nil, err
	}
	return consoleSessions{s.authn}.Find(ctx, id)
}
