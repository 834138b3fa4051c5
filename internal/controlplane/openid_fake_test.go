package controlplane

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/openid"
	"github.com/pipeops/pipeops-vm-agent/internal/tlsfiles"
	"github.com/pipeops/pipeops-vm-agent/internal/web/console"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

const (
	openIDClient = "console"
	openIDSecret = "a-secret-of-the-client"
)

// fakeProvider is an OpenID provider of the test's own, because a real one does not misbehave. It
// speaks the real protocol: discovery, keys, PKCE, and codes that work once.
type fakeProvider struct {
	*httptest.Server
	t   *testing.T
	key *ecdsa.PrivateKey
	now func() time.Time

	// away has the provider answer 404 to everything.
	away  atomic.Bool
	mu    sync.Mutex
	codes map[string]url.Values // what was asked for, by code
	// claims changes the ID token's claims, and sign makes the token; nil for ES256 with the
	// published key.
	claims map[string]any
	sign   func(claims map[string]any) string
	// also is added to the query of the browser's return.
	also url.Values
}

func newFakeProvider(t *testing.T, now func() time.Time) *fakeProvider {
	t.Helper()
	key := selfsigned.Key(t)
	f := &fakeProvider{t: t, key: key, now: now, codes: map[string]url.Values{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", f.discovery)
	mux.HandleFunc("GET /keys", f.keys)
	mux.HandleFunc("GET /authorize", f.authorize)
	mux.HandleFunc("POST /token", f.token)
	f.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.away.Load() {
			http.NotFound(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fakeProvider) write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	assert.NoError(f.t, json.NewEncoder(w).Encode(body))
}

func (f *fakeProvider) discovery(w http.ResponseWriter, _ *http.Request) {
	f.write(w, http.StatusOK, map[string]any{
		"issuer": f.URL, "authorization_endpoint": f.URL + "/authorize", "token_endpoint": f.URL + "/token", "jwks_uri": f.URL + "/keys",
		// It offers what no client should take.
		"id_token_signing_alg_values_supported": []string{"ES256", "none", "HS256"},
	})
}

func (f *fakeProvider) keys(w http.ResponseWriter, _ *http.Request) {
	f.write(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: f.key.Public(), KeyID: "k1", Algorithm: "ES256", Use: "sig"}}})
}

// authorize signs the person in at once, as a provider does that has a session.
func (f *fakeProvider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	assert.Equal(f.t, "code", q.Get("response_type"))
	assert.Equal(f.t, openIDClient, q.Get("client_id"))
	assert.Equal(f.t, "S256", q.Get("code_challenge_method"))
	for _, sent := range []string{"state", "nonce", "code_challenge"} {
		assert.GreaterOrEqual(f.t, len(q.Get(sent)), 43, sent)
	}
	code := rand.Text()
	f.mu.Lock()
	f.codes[code] = q
	back := url.Values{"code": {code}, "state": {q.Get("state")}}
	maps.Copy(back, f.also)
	f.mu.Unlock()
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusSeeOther)
}

func (f *fakeProvider) token(w http.ResponseWriter, r *http.Request) {
	refuse := func(code string) { f.write(w, http.StatusBadRequest, map[string]string{"error": code}) }
	if id, secret, ok := r.BasicAuth(); !ok || id != openIDClient || secret != openIDSecret {
		refuse("invalid_client")
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	asked, known := f.codes[r.PostFormValue("code")]
	delete(f.codes, r.PostFormValue("code"))
	challenge := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !known || base64.RawURLEncoding.EncodeToString(challenge[:]) != asked.Get("code_challenge") || r.PostFormValue("redirect_uri") != asked.Get("redirect_uri") {
		refuse("invalid_grant")
		return
	}
	claims := map[string]any{
		"iss": f.URL, "sub": "1234", "aud": openIDClient, "iat": f.now().Unix(), "exp": f.now().Add(time.Hour).Unix(), "nonce": asked.Get("nonce"),
		"email": "alice@example.com", "email_verified": true, "groups": []string{"staff", "platform"},
	}
	for name, value := range f.claims {
		if claims[name] = value; value == nil {
			delete(claims, name)
		}
	}
	sign := f.sign
	if sign == nil {
		sign = func(claims map[string]any) string { return signed(f.t, jose.ES256, f.key, claims) }
	}
	f.write(w, http.StatusOK, map[string]any{"access_token": "unused", "token_type": "Bearer", "id_token": sign(claims)})
}

func signed(t *testing.T, algorithm jose.SignatureAlgorithm, key any, claims map[string]any) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: jose.JSONWebKey{Key: key, KeyID: "k1"}}, nil)
	assert.NoError(t, err)
	text, err := json.Marshal(claims)
	assert.NoError(t, err)
	made, err := signer.Sign(text)
	assert.NoError(t, err)
	compact, err := made.CompactSerialize()
	assert.NoError(t, err)
	return compact
}

// unsigned returns a token of the algorithm none.
func unsigned(t *testing.T, claims map[string]any) string {
	text, err := json.Marshal(claims)
	assert.NoError(t, err)
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode(text) + "."
}

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

// set changes how the provider behaves.
func (f *fakeProvider) set(claims map[string]any, sign func(map[string]any) string, also url.Values) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.claims, f.sign, f.also = claims, sign, also
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
