// Package openidtest is a stand-in for an OpenID provider. dex, in test/dex, is a real one.
package openidtest

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
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

	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

// The provider's only client.
const (
	Client = "console"
	Secret = "a-secret-of-the-client"
)

// Provider is an OpenID provider of the test's own, because a real one does not misbehave. It
// speaks the real protocol: discovery, keys, PKCE, and codes that work once.
type Provider struct {
	*httptest.Server
	t   testing.TB
	now func() time.Time
	// Key signs its ID tokens.
	Key *ecdsa.PrivateKey
	// Away has the provider answer 404 to everything.
	Away atomic.Bool
	// Exchanged counts the codes that were redeemed.
	Exchanged atomic.Int64
	mu        sync.Mutex
	codes     map[string]url.Values // what was asked for, by code
	// claims changes the ID token's claims, and sign makes the token; nil for ES256 with the
	// published key.
	claims map[string]any
	sign   func(claims map[string]any) string
	// also is added to the query of the browser's return.
	also url.Values
}

// New returns a provider that runs until the test ends.
func New(t testing.TB, now func() time.Time) *Provider {
	t.Helper()
	key := selfsigned.Key(t)
	f := &Provider{t: t, Key: key, now: now, codes: map[string]url.Values{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", f.discovery)
	mux.HandleFunc("GET /keys", f.keys)
	mux.HandleFunc("GET /authorize", f.authorize)
	mux.HandleFunc("POST /token", f.token)
	f.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.Away.Load() {
			http.NotFound(w, r)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *Provider) write(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	assert.NoError(f.t, json.NewEncoder(w).Encode(body))
}

func (f *Provider) discovery(w http.ResponseWriter, _ *http.Request) {
	f.write(w, http.StatusOK, map[string]any{
		"issuer": f.URL, "scopes_supported": []string{"openid", "email", "groups"}, "authorization_endpoint": f.URL + "/authorize", "token_endpoint": f.URL + "/token", "jwks_uri": f.URL + "/keys",
		// It offers what no client should take.
		"id_token_signing_alg_values_supported": []string{"ES256", "none", "HS256"},
	})
}

func (f *Provider) keys(w http.ResponseWriter, _ *http.Request) {
	f.write(w, http.StatusOK, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: f.Key.Public(), KeyID: "k1", Algorithm: "ES256", Use: "sig"}}})
}

// authorize signs the person in at once, as a provider does that has a session.
func (f *Provider) authorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	assert.Equal(f.t, "code", q.Get("response_type"))
	assert.Equal(f.t, Client, q.Get("client_id"))
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

func (f *Provider) token(w http.ResponseWriter, r *http.Request) {
	refuse := func(code string) { f.write(w, http.StatusBadRequest, map[string]string{"error": code}) }
	if id, secret, ok := r.BasicAuth(); !ok || id != Client || secret != Secret {
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
		"iss": f.URL, "sub": "1234", "aud": Client, "iat": f.now().Unix(), "exp": f.now().Add(time.Hour).Unix(), "nonce": asked.Get("nonce"),
		"email": "alice@example.com", "email_verified": true, "groups": []string{"staff", "platform"},
	}
	for name, value := range f.claims {
		if claims[name] = value; value == nil {
			delete(claims, name)
		}
	}
	sign := f.sign
	if sign == nil {
		sign = func(claims map[string]any) string { return Signed(f.t, jose.ES256, f.Key, claims) }
	}
	f.Exchanged.Add(1)
	f.write(w, http.StatusOK, map[string]any{"access_token": "unused", "token_type": "Bearer", "id_token": sign(claims)})
}

// Signed returns a token with some claims, whose key has the ID k1.
func Signed(t testing.TB, algorithm jose.SignatureAlgorithm, key any, claims map[string]any) string {
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

// Unsigned returns a token of the algorithm none.
func Unsigned(t testing.TB, claims map[string]any) string {
	text, err := json.Marshal(claims)
	assert.NoError(t, err)
	encode := base64.RawURLEncoding.EncodeToString
	return encode([]byte(`{"alg":"none"}`)) + "." + encode(text) + "."
}

// Set changes how the provider behaves: claims of the ID token, nil for none; how the token is
// made; and what is added to the query of the browser's return.
func (f *Provider) Set(claims map[string]any, sign func(map[string]any) string, also url.Values) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.claims, f.sign, f.also = claims, sign, also
}

// CA returns the provider's certificate in PEM, which is its own CA.
func (f *Provider) CA() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw})
}
