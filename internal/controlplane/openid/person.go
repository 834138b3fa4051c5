package openid

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
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
	l := loginOf(secret)
	if secret == "" || !same(query.Get("state"), l.state) {
		return Person{}, problem.Errorf(problem.Unauthorized, fixAgain, "this sign-in did not begin in this browser, or it took too long")
	}
	if iss := query.Get("iss"); iss != "" && iss != p.cfg.Issuer { // RFC 9207
		return Person{}, problem.Errorf(problem.Unauthorized, fixAgain, "another identity provider sent this answer: %s", shown(iss))
	}
	if code := query.Get("error"); code != "" {
		return Person{}, problem.Errorf(problem.Unauthorized, fixAgain, "the identity provider refused: %s", shown(strings.TrimSpace(code+" "+query.Get("error_description"))))
	}
	token, err := p.redeem(ctx, l, query.Get("code"))
	if err != nil {
		return Person{}, err
	}
	return p.person(token)
}

// redeem exchanges a code for a verified ID token.
func (p *Provider) redeem(ctx context.Context, l login, code string) (*oidc.IDToken, error) {
	secret, err := p.cfg.secret()
	if err != nil {
		return nil, p.away(errors.New("this control plane cannot read the client's secret (--openid-client-secret-file)"))
	}
	oauth, err := p.client(ctx, secret)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.issuers.client), callTimeout)
	defer cancel()
	answer, err := oauth.Exchange(ctx, code, oauth2.VerifierOption(l.verifier))
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused) && refused.ErrorCode != "":
		return nil, problem.Errorf(problem.Unauthorized, fixAgain, "the identity provider refused the code: %s",
			shown(strings.TrimSpace(refused.ErrorCode+" "+refused.ErrorDescription)))
	case errors.As(err, &refused): // the text may be anything
		return nil, p.away(errors.New("it answered " + refused.Response.Status))
	case err != nil:
		return nil, p.away(err)
	}
	raw, _ := answer.Extra("id_token").(string)
	token, err := p.issuers.Verify(ctx, p.cfg.Issuer, p.cfg.ClientID, raw)
	if _, away := errors.AsType[*AwayError](err); away {
		return nil, p.away(err)
	}
	if err != nil {
		return nil, invalid(err.Error())
	}
	var more struct {
		AuthorizedParty string `json:"azp"`
	}
	switch err := token.Claims(&more); {
	case err != nil:
		return nil, invalid(err.Error())
	case !same(token.Nonce, l.nonce):
		return nil, invalid("its nonce is that of another sign-in")
	case more.AuthorizedParty != "" && more.AuthorizedParty != p.cfg.ClientID, len(token.Audience) > 1 && more.AuthorizedParty == "":
		return nil, invalid("it was issued to another client")
	case token.Subject == "":
		return nil, invalid("it has no sub")
	}
	return token, nil
}

func invalid(reason string) error {
	return problem.Errorf(problem.Unauthorized, fixAgain+"; if it happens again, look at the identity provider", "the ID token is not valid: %s", shown(reason))
}

// person reads the claims of a verified ID token.
func (p *Provider) person(token *oidc.IDToken) (Person, error) {
	claims := map[string]json.RawMessage{}
	if err := token.Claims(&claims); err != nil {
		return Person{}, invalid(err.Error())
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
			"no group of %s has a role here; the claim %s has %s", name, p.cfg.GroupsClaim, shown(cmp.Or(strings.Join(person.Groups, ", "), "no group")))
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
	if claim == DefaultNameClaim && !verified(claims["email_verified"]) {
		return "", problem.Errorf(problem.Forbidden, "verify the address at the identity provider, or have an admin name another claim with --openid-name-claim",
			"the identity provider has not verified the email address %s (email_verified)", name)
	}
	return name, nil
}

// verified reports whether a claim is true. Some providers send booleans as text.
func verified(claim json.RawMessage) bool {
	return string(claim) == `true` || string(claim) == `"true"`
}

// groups returns the groups of a person: a list, or a single one.
func (p *Provider) groups(claims map[string]json.RawMessage) ([]string, error) {
	text, found := claims[p.cfg.GroupsClaim]
	var list []string
	var one string
	switch {
	case !found:
		return nil, problem.Errorf(problem.Forbidden, "have the identity provider send the claim, request its scope with --openid-scope, or name another claim with --openid-groups-claim",
			"the ID token has no claim %s", p.cfg.GroupsClaim)
	case json.Unmarshal(text, &list) == nil:
		return list, nil
	case json.Unmarshal(text, &one) == nil:
		return []string{one}, nil
	}
	return nil, problem.Errorf(problem.Forbidden, "name another claim with --openid-groups-claim", "the claim %s is neither a list of names nor a name", p.cfg.GroupsClaim)
}

// shown bounds a text of another program, and leaves out what cannot be shown.
func shown(text string) string {
	return short(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, text))
}
