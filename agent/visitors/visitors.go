// Package visitors has visitors of Apps sign in at the identity provider of the control plane.
package visitors

import (
	"context"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/gateway/signin"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// identifyTimeout bounds the call by which the agent learns who a visitor is.
const identifyTimeout = 10 * time.Second

// SignIn is the control plane's identity provider for visitors of Apps, as the last heartbeat's
// answer has it.
type SignIn struct {
	// Changed is called when it is another one, or none.
	Changed func()

	known atomic.Pointer[provider]
	told  atomic.Bool // the control plane has said whether it has one
}

// Take takes what the answer to a heartbeat says. It must not be called concurrently.
func (s *SignIn) Take(control *controlapi.Client, answer *controlapi.VisitorSignIn) {
	before, first := s.known.Load(), !s.told.Swap(true)
	var now *provider
	if answer != nil {
		now = &provider{control, *answer}
	}
	if !first && now.same(before) {
		return
	}
	s.known.Store(now)
	s.Changed()
}

// Source implements signin.Source.
func (s *SignIn) Source() (p signin.Provider, unmet string) {
	switch known := s.known.Load(); {
	case known != nil:
		return *known, ""
	case !s.told.Load():
		return nil, "the agent has not heard from the control plane yet whether it has an identity provider"
	}
	return nil, "the control plane has no identity provider for visitors; its operator gives `serve` --openid-issuer and --gateway-domain, " +
		"or name a Secret in ingress.visitors.signIn.secret"
}

// Has reports whether the control plane has an identity provider for visitors, once that is known.
func (s *SignIn) Has() (has, known bool) { return s.known.Load() != nil, s.told.Load() }

// provider has visitors sign in at the control plane's identity provider. Two of the same
// control plane with the same settings are equal.
type provider struct {
	control *controlapi.Client
	signIn  controlapi.VisitorSignIn
}

var _ signin.Provider = provider{}

// same reports whether two providers, each of which may be nil, are equal.
func (p *provider) same(o *provider) bool {
	if p == nil || o == nil {
		return p == o
	}
	return *p == *o
}

// ID changes with what a subject means.
func (p provider) ID() string { return p.signIn.Provider }

// AuthorizeURL implements signin.Provider. The control plane sends the browser back to the host of
// redirect by itself. The verifier binds the sign-in to the browser, as a nonce would.
func (p provider) AuthorizeURL(_ context.Context, redirect, state, _, challenge string) (string, error) {
	host, err := hostOfRedirect(redirect)
	if err != nil {
		return "", err
	}
	return controlapi.VisitorPage(p.signIn.Page, host, state, challenge), nil
}

// Exchange implements signin.Provider.
func (p provider) Exchange(ctx context.Context, redirect, code, verifier, _ string) (signin.Person, error) {
	host, err := hostOfRedirect(redirect)
	if err != nil {
		return signin.Person{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, identifyTimeout)
	defer cancel()
	visitor, err := p.control.Visitor(ctx, controlapi.VisitorRequest{Host: host, Code: code, Verifier: verifier})
	if err != nil {
		return signin.Person{}, forVisitor(err)
	}
	if visitor.Subject == "" {
		return signin.Person{}, problem.Errorf(problem.Unavailable, "try again in a moment", "the control plane did not say who you are")
	}
	return signin.Person(visitor), nil
}

// forVisitor returns an error of the control plane as visitors are to see it. What is not about
// their sign-in is about the agent.
func forVisitor(err error) error {
	if refused, ok := problem.Of(err); ok && (refused.Code == problem.Forbidden || refused.Code == problem.Invalid) {
		return problem.Errorf(problem.Unauthorized, "open the page again", "the sign-in took too long, or was used before")
	}
	return problem.Errorf(problem.Unavailable, "try again in a moment", "the control plane cannot be asked who you are now")
}

// hostOfRedirect returns the host to which a visitor returns, without a port.
func hostOfRedirect(redirect string) (string, error) {
	u, err := url.Parse(redirect)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.Path != gatewaywire.CallbackPath {
		return "", problem.Errorf(problem.Internal, "report this with the agent's version", "the address of the return is not as it should be")
	}
	return u.Hostname(), nil
}
