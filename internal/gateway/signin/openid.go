package signin

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/idtoken"
	"github.com/pipeops/pipeops-vm-agent/internal/proxy"
	"github.com/pipeops/pipeops-vm-agent/internal/trustanchor"
)

// Keys of a Secret with an identity provider. The last two may be absent.
const (
	KeyIssuer       = "issuer"
	KeyClientID     = "client-id"
	KeyClientSecret = "client-secret"
	KeyCA           = "ca.crt"
	KeyGroupsClaim  = "groups-claim"
)

// Keys are all of them.
var Keys = []string{KeyIssuer, KeyClientID, KeyClientSecret, KeyCA, KeyGroupsClaim}

// maxSetting bounds a value of the Secret, in bytes, but that of KeyCA.
const maxSetting = 2048

// OpenID is an identity provider that the App's deployer names.
type OpenID struct {
	client *idtoken.Client
	groups string // the claim
}

var _ Provider = (*OpenID)(nil)

// NewOpenID returns the provider that the data of a Secret describes. The guard decides where it
// may be; it is not called yet. Errors name the key.
func NewOpenID(data map[string][]byte, guard egress.Guard, now func() time.Time) (*OpenID, error) {
	text := map[string]string{}
	for _, key := range []string{KeyIssuer, KeyClientID, KeyClientSecret, KeyGroupsClaim} {
		value := strings.TrimSpace(string(data[key]))
		if len(value) > maxSetting {
			return nil, fmt.Errorf("key %s: it has more than %d characters", key, maxSetting)
		}
		if value == "" && key != KeyGroupsClaim {
			return nil, fmt.Errorf("it has no key %s; give it %s, %s and %s", key, KeyIssuer, KeyClientID, KeyClientSecret)
		}
		text[key] = value
	}
	if !idtoken.ValidIssuer(text[KeyIssuer]) {
		return nil, errors.New("key " + KeyIssuer + ": it is not https://HOST[:PORT][/PATH], as the provider's ID tokens have it in iss")
	}
	var roots *x509.CertPool
	if ca := data[KeyCA]; len(ca) > 0 {
		roots = x509.NewCertPool()
		if !trustanchor.Append(roots, ca) {
			return nil, errors.New("key " + KeyCA + ": it has no CA certificate in PEM")
		}
	}
	return &OpenID{groups: cmp.Or(text[KeyGroupsClaim], "groups"), client: &idtoken.Client{
		Issuers: idtoken.NewIssuersBy(through(guard, roots), now), Issuer: text[KeyIssuer], ID: text[KeyClientID],
		Secret: func() (string, error) { return text[KeyClientSecret], nil },
		Wanted: []string{"email", "profile", "groups"},
		Again:  fixAgain, Later: "try again in a moment; if it stays so, check the Secret of ingress.visitors.signIn",
	}}, nil
}

// through returns a transport that the guard keeps from addresses where no provider is.
func through(guard egress.Guard, roots *x509.CertPool) http.RoundTripper {
	base := proxy.FromEnvironment().Use(http.DefaultTransport.(*http.Transport).Clone())
	if roots != nil {
		base.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return guard.Transport(base)
}

// ID changes with what a subject means.
func (o *OpenID) ID() string { return o.client.Issuer + "\n" + o.client.ID }

// Issuer returns the issuer of the provider's answers.
func (o *OpenID) Issuer() string { return o.client.Issuer }

// AuthorizeURL implements Provider.
func (o *OpenID) AuthorizeURL(ctx context.Context, redirect, state, nonce, challenge string) (string, error) {
	return o.client.AuthorizeURL(ctx, redirect, state, nonce, challenge)
}

// Exchange implements Provider.
func (o *OpenID) Exchange(ctx context.Context, redirect, code, verifier, nonce string) (Person, error) {
	token, err := o.client.Exchange(ctx, redirect, code, verifier, nonce)
	if err != nil {
		return Person{}, err
	}
	claims := map[string]json.RawMessage{}
	if err := token.Claims(&claims); err != nil {
		return Person{}, o.client.Invalid(err.Error())
	}
	p := Person{Subject: token.Subject, EmailVerified: idtoken.Verified(claims["email_verified"])}
	p.Email, p.Name = textOf(claims["email"]), cmp.Or(textOf(claims["name"]), textOf(claims["preferred_username"]))
	p.Groups, _ = idtoken.Names(claims[o.groups])
	return p, nil
}

// textOf returns a claim that is a text; empty for others.
func textOf(claim json.RawMessage) (text string) {
	if json.Unmarshal(claim, &text) != nil {
		return ""
	}
	return text
}
