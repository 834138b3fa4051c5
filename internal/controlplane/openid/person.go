package openid

import (
	"cmp"
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/internal/idtoken"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// maxName bounds the name that a person gets from a claim, in bytes.
const maxName = 200

const fixAgain = "open the console and sign in again"

// Person is someone whom the identity provider has identified.
type Person struct {
	// Name begins with authn.OpenIDPrefix.
	Name, Subject string
	Groups        []string
	Role          string
	// Expires is when the ID token does.
	Expires time.Time
}

// Finish returns who has returned with a query from the identity provider. With an error, the name
// is set if the provider has identified the person.
func (p *Provider) Finish(ctx context.Context, secret string, query url.Values) (Person, error) {
	token, err := p.token(ctx, "", secret, query)
	if err != nil {
		return Person{}, err
	}
	return p.person(token)
}

// token returns the ID token of the person who has returned with a query, from the address that
// Address returned for this note and this secret.
func (p *Provider) token(ctx context.Context, note, secret string, query url.Values) (*oidc.IDToken, error) {
	l, state := idtoken.LoginOf(secret), ""
	if secret != "" {
		state = note + l.State
	}
	code, err := p.client.Returned(query, state)
	if err != nil {
		return nil, err
	}
	return p.client.Exchange(ctx, p.back, code, l.Verifier, l.Nonce)
}

// person reads the claims of a verified ID token.
func (p *Provider) person(token *oidc.IDToken) (Person, error) {
	claims := map[string]json.RawMessage{}
	if err := token.Claims(&claims); err != nil {
		return Person{}, p.client.Invalid(err.Error())
	}
	person := Person{Subject: token.Subject, Expires: token.Expiry}
	name, err := p.name(claims)
	if err != nil {
		return person, err
	}
	person.Name = authn.OpenIDPrefix + name
	if person.Groups, err = p.groups(claims); err != nil {
		return person, err
	}
	if person.Role = p.cfg.role(person.Groups); person.Role == "" {
		return person, problem.Errorf(problem.Forbidden, "have the identity provider put you into one of "+p.cfg.mapped()+", or have an admin give a group of yours a role with --openid-role",
			"no group of %s has a role here; the claim %s has %s", name, p.cfg.GroupsClaim, idtoken.Shown(cmp.Or(strings.Join(person.Groups, ", "), "no group")))
	}
	return person, nil
}

// name returns the name of a person.
func (p *Provider) name(claims map[string]json.RawMessage) (string, error) {
	claim := p.cfg.NameClaim
	var name string
	if err := json.Unmarshal(claims[claim], &name); err != nil || strings.TrimSpace(name) == "" {
		return "", problem.Errorf(problem.Forbidden, "have the identity provider send the claim, or name another one with --openid-name-claim", "the ID token has no claim %s", claim)
	}
	if len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "", problem.Errorf(problem.Forbidden, "name another claim with --openid-name-claim", "the claim %s is longer than %d bytes, or has characters that cannot be shown", claim, maxName)
	}
	if claim == DefaultNameClaim && !idtoken.Verified(claims["email_verified"]) {
		return "", problem.Errorf(problem.Forbidden, "verify the address at the identity provider, or have an admin name another claim with --openid-name-claim",
			"the identity provider has not verified the email address %s (email_verified)", name)
	}
	return name, nil
}

// groups returns the groups of a person: a list, or a single one.
func (p *Provider) groups(claims map[string]json.RawMessage) ([]string, error) {
	text, found := claims[p.cfg.GroupsClaim]
	if !found {
		return nil, problem.Errorf(problem.Forbidden, "have the identity provider send the claim, request its scope with --openid-scope, or name another claim with --openid-groups-claim",
			"the ID token has no claim %s", p.cfg.GroupsClaim)
	}
	if list, ok := idtoken.Names(text); ok {
		return list, nil
	}
	return nil, problem.Errorf(problem.Forbidden, "name another claim with --openid-groups-claim", "the claim %s is neither a list of names nor a name", p.cfg.GroupsClaim)
}
