package idtoken

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Client is a client of an identity provider, in the authorization code flow with PKCE. Its errors
// are problems, and have neither codes nor secrets.
type Client struct {
	Issuers    *Issuers
	Issuer, ID string
	// Secret returns the client's secret as it is now.
	Secret func() (string, error)
	// Scopes are requested beside openid, and Wanted only of a provider that lists them.
	Scopes, Wanted []string
	// Again is the fix for a person whose sign-in failed, and Later while the provider is away.
	Again, Later string

	mu    sync.Mutex
	oauth *oauth2.Config // with the secret of the last sign-in; it knows how the provider takes it
}

// AuthorizeURL returns the https address to which a browser is sent, so that the provider sends it
// back to redirect.
func (c *Client) AuthorizeURL(ctx context.Context, redirect, state, nonce, challenge string) (string, error) {
	oauth, err := c.client(ctx, "")
	if err != nil {
		return "", err
	}
	return oauth.AuthCodeURL(state, backTo(redirect), oidc.Nonce(nonce),
		oauth2.SetAuthURLParam("code_challenge", challenge), oauth2.SetAuthURLParam("code_challenge_method", "S256")), nil
}

func backTo(redirect string) oauth2.AuthCodeOption {
	return oauth2.SetAuthURLParam("redirect_uri", redirect)
}

// Returned checks the query with which a browser returns from the provider, for the state of a
// sign-in, and returns the code.
func (c *Client) Returned(query url.Values, state string) (code string, err error) {
	if state == "" || !Same(query.Get("state"), state) {
		return "", problem.Errorf(problem.Unauthorized, c.Again, "this sign-in did not begin in this browser, or it took too long")
	}
	if iss := query.Get("iss"); iss != "" && iss != c.Issuer { // RFC 9207
		return "", problem.Errorf(problem.Unauthorized, c.Again, "another identity provider sent this answer: %s", Shown(iss))
	}
	if refused := query.Get("error"); refused != "" {
		return "", problem.Errorf(problem.Unauthorized, c.Again, "the identity provider refused: %s", Shown(strings.TrimSpace(refused+" "+query.Get("error_description"))))
	}
	return query.Get("code"), nil
}

// Exchange exchanges a code for a verified ID token.
func (c *Client) Exchange(ctx context.Context, redirect, code, verifier, nonce string) (*oidc.IDToken, error) {
	secret, err := c.Secret()
	if err != nil {
		return nil, c.Away(err)
	}
	oauth, err := c.client(ctx, secret)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, c.Issuers.client), callTimeout)
	defer cancel()
	answer, err := oauth.Exchange(ctx, code, backTo(redirect), oauth2.VerifierOption(verifier))
	var refused *oauth2.RetrieveError
	switch {
	case errors.As(err, &refused) && refused.ErrorCode != "":
		return nil, problem.Errorf(problem.Unauthorized, c.Again, "the identity provider refused the code: %s",
			Shown(strings.TrimSpace(refused.ErrorCode+" "+refused.ErrorDescription)))
	case errors.As(err, &refused): // the text may be anything
		return nil, c.Away(errors.New("it answered " + refused.Response.Status))
	case err != nil:
		return nil, c.Away(err)
	}
	raw, _ := answer.Extra("id_token").(string)
	token, err := c.Issuers.Verify(ctx, c.Issuer, c.ID, raw)
	if _, away := errors.AsType[*AwayError](err); away {
		return nil, c.Away(err)
	}
	if err != nil {
		return nil, c.Invalid(err.Error())
	}
	return token, c.issuedHere(token, nonce)
}

// issuedHere checks that a valid ID token is of this sign-in, and for this client.
func (c *Client) issuedHere(token *oidc.IDToken, nonce string) error {
	var more struct {
		AuthorizedParty string `json:"azp"`
	}
	switch err := token.Claims(&more); {
	case err != nil:
		return c.Invalid(err.Error())
	case !Same(token.Nonce, nonce):
		return c.Invalid("its nonce is that of another sign-in")
	case more.AuthorizedParty != "" && more.AuthorizedParty != c.ID, len(token.Audience) > 1 && more.AuthorizedParty == "":
		return c.Invalid("it was issued to another client")
	case token.Subject == "":
		return c.Invalid("it has no sub")
	}
	return nil
}

// client returns the client with a secret.
func (c *Client) client(ctx context.Context, secret string) (*oauth2.Config, error) {
	found, err := c.Issuers.find(ctx, c.Issuer)
	if err != nil {
		return nil, c.Away(err)
	}
	at := found.Endpoint()
	for _, address := range []string{at.AuthURL, at.TokenURL} {
		if u, err := url.Parse(address); err != nil || u.Scheme != "https" {
			return nil, c.Away(fmt.Errorf("its endpoint %.200q is not an https address", address))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.oauth == nil || c.oauth.ClientSecret != secret && secret != "" {
		scopes := append([]string{oidc.ScopeOpenID}, c.Scopes...)
		for _, scope := range c.Wanted {
			if slices.Contains(found.scopes, scope) {
				scopes = append(scopes, scope)
			}
		}
		c.oauth = &oauth2.Config{ClientID: c.ID, ClientSecret: secret, Endpoint: at, Scopes: scopes}
	}
	return c.oauth, nil
}

// Away returns the error of a provider that cannot be used now.
func (c *Client) Away(err error) error {
	return problem.Errorf(problem.Unavailable, c.Later,
		"the identity provider %s cannot be used: %s", c.Issuer, short(cmp.Or(err, context.DeadlineExceeded).Error()))
}

// Invalid returns the error of an ID token that is not valid.
func (c *Client) Invalid(reason string) error {
	return problem.Errorf(problem.Unauthorized, c.Again+"; if it happens again, look at the identity provider", "the ID token is not valid: %s", Shown(reason))
}

// Shown bounds a text of another program, and leaves out what cannot be shown.
func Shown(text string) string {
	return short(strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, text))
}

// short bounds a text that another program has made.
func short(text string) string {
	const most = 300
	if len(text) > most {
		return text[:most] + "..."
	}
	return text
}
