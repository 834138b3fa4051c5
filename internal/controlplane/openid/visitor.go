package openid

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/pipeops/pipeops-vm-agent/internal/idtoken"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const (
	// maxSubject bounds sub (OpenID Connect Core 1.0, section 2), and maxEmail an email address
	// (RFC 5321, section 4.5.3.1), in bytes.
	maxSubject, maxEmail = 255, 320
	// maxGroups bounds how many groups of a visitor count, and maxGroup their names, in bytes.
	maxGroups, maxGroup = 1000, 256
)

const fixVisit = "open the page of the App again"

// Visitor is someone whom the identity provider has identified, with any role here or none.
type Visitor struct {
	Subject       string
	Email         string
	EmailVerified bool
	Name          string
	Groups        []string
}

// Visitor returns who has returned with a query, from the address that Address returned for this
// note and this secret. The errors are for those who wanted to visit an App.
func (p *Provider) Visitor(ctx context.Context, note, secret string, query url.Values) (Visitor, error) {
	token, err := p.token(ctx, note, secret, query)
	if err != nil {
		return Visitor{}, ForVisitor(err)
	}
	visitor, err := p.visitor(token)
	return visitor, ForVisitor(err)
}

// ForVisitor returns an error of this package with what a visitor of an App can do about it.
func ForVisitor(err error) error {
	known, ok := errors.AsType[*problem.Error](err)
	if !ok {
		return err
	}
	told := *known
	told.Fix = fixVisit
	if told.Passing() {
		told.Fix = "try again in a moment: " + fixVisit
	}
	return &told
}

// visitor reads the claims of a verified ID token. A claim of another kind than it should be, or
// longer, counts as missing: it proves nothing.
func (p *Provider) visitor(token *oidc.IDToken) (Visitor, error) {
	claims := map[string]json.RawMessage{}
	if err := token.Claims(&claims); err != nil {
		return Visitor{}, p.client.Invalid(err.Error())
	}
	if !plain(token.Subject, maxSubject) {
		return Visitor{}, p.client.Invalid("its sub is too long, or has characters that cannot be shown")
	}
	visitor := Visitor{
		Subject: token.Subject, Email: text(claims["email"], maxEmail), Name: text(claims["name"], maxName),
		EmailVerified: idtoken.Verified(claims["email_verified"]),
	}
	groups, _ := idtoken.Names(claims[p.cfg.GroupsClaim])
	for _, group := range groups {
		if plain(group, maxGroup) && len(visitor.Groups) < maxGroups {
			visitor.Groups = append(visitor.Groups, group)
		}
	}
	return visitor, nil
}

// text returns a claim that is a text which can be shown; empty for others.
func text(claim json.RawMessage, most int) string {
	var s string
	if json.Unmarshal(claim, &s) != nil || !plain(s, most) {
		return ""
	}
	return s
}

// plain reports whether a text can be shown, and has some bytes but no more than most.
func plain(s string, most int) bool {
	return s != "" && len(s) <= most && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
