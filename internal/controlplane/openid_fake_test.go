package controlplane

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"net/http"
	"net/url"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/openid"
	"github.com/pipeops/pipeops-vm-agent/internal/tlsfiles"
	"github.com/pipeops/pipeops-vm-agent/internal/web/console"
	"github.com/pipeops/pipeops-vm-agent/test/openidtest"
)

const (
	openIDClient = openidtest.Client
	openIDSecret = openidtest.Secret
)

// fakeProvider is the OpenID provider of tests, which issues tokens for jobs too.
type fakeProvider struct {
	*openidtest.Provider
	t    *testing.T
	key  *ecdsa.PrivateKey
	now  func() time.Time
	away *atomic.Bool
}

func newFakeProvider(t *testing.T, now func() time.Time) *fakeProvider {
	t.Helper()
	f := openidtest.New(t, now)
	return &fakeProvider{f, t, f.Key, now, &f.Away}
}

// set changes how the provider behaves.
func (f *fakeProvider) set(claims map[string]any, sign func(map[string]any) string, also url.Values) {
	f.Set(claims, sign, also)
}

func signed(t *testing.T, algorithm jose.SignatureAlgorithm, key any, claims map[string]any) string {
	return openidtest.Signed(t, algorithm, key, claims)
}

func unsigned(t *testing.T, claims map[string]any) string { return openidtest.Unsigned(t, claims) }

// idToken returns an ID token for a job with some claims, and without those that are nil.
func (f *fakeProvider) idToken(audience string, change map[string]any) string {
	return signed(f.t, jose.ES256, f.key, f.jobClaims(audience, change))
}

func (f *fakeProvider) jobClaims(audience string, change map[string]any) map[string]any {
	claims := map[string]any{
		"iss": f.URL, "sub": "repo:shop/web:environment:prod", "aud": audience, "jti": rand.Text(),
		"iat": f.now().Unix(), "nbf": f.now().Unix(), "exp": f.now().Add(5 * time.Minute).Unix(),
		"repository": "shop/web", "environment": "prod", "sha": "3f2a9c1", "actor": "alice", "groups": []string{"ci", "deployers"},
		"workflow_ref": "shop/web/.github/workflows/deploy.yaml@refs/heads/main", "protected": true,
	}
	for name, value := range change {
		if claims[name] = value; value == nil {
			delete(claims, name)
		}
	}
	return claims
}

// openIDSettings are those for a provider with a certificate.
func openIDSettings(issuer string, certificate *x509.Certificate) openid.Config {
	roots := x509.NewCertPool()
	roots.AddCert(certificate)
	return openid.Config{
		Issuer: issuer, ClientID: openIDClient, ClientSecret: openIDSecret, TLS: tlsfiles.Fixed(roots),
		NameClaim: openid.DefaultNameClaim, GroupsClaim: openid.DefaultGroupsClaim, Scopes: openid.DefaultScopes,
		Roles: map[string]string{"platform": administration.RoleOperator, "audit": administration.RoleViewer},
	}
}

// startWithFake runs a control plane with a provider of the test's own.
func startWithFake(t *testing.T) (*plane, *fakeProvider) {
	t.Helper()
	var f *fakeProvider
	p := start(t, func(c *Config) {
		f = newFakeProvider(t, c.Now)
		c.OpenID = openIDSettings(f.URL, f.Certificate())
	})
	return p, f
}

// browserFor returns a browser that trusts a provider as well.
func (p *plane) browserFor(certificate *x509.Certificate) *tab {
	p.t.Helper()
	b := p.browser()
	b.http.Transport.(*http.Transport).TLSClientConfig.RootCAs.AddCert(certificate)
	return b
}

// stopAtReturn has the browser not follow the provider's redirect, and returns where it leads.
func (b *tab) stopAtReturn() (address *string) {
	address = new(string)
	b.http.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Path == "/console/sign-in/return" {
			*address = r.URL.RequestURI()
			return http.ErrUseLastResponse
		}
		return nil
	}
	return address
}

// loginSecret returns what the browser keeps while it is at the provider; empty for nothing.
func (b *tab) loginSecret() string { return b.kept(console.Cookie + "-login") }

func (b *tab) kept(cookie string) string {
	b.p.t.Helper()
	for _, c := range b.http.Jar.Cookies(b.at()) {
		if c.Name == cookie {
			return c.Value
		}
	}
	return ""
}
