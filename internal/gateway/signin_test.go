package gateway_test

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/gateway/signin"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/test/openidtest"
)

const (
	site       = "app.example.org"
	tokenOfBot = "bot-0123456789abcdef0123456789abcdef"
)

// signedIn is an agent whose App at site wants its visitors to sign in at a provider, and whose App
// at /other of the same host at another one.
type signedIn struct {
	t        *testing.T
	provider *openidtest.Provider
	handler  *gateway.Handler
	server   *httptest.Server // TLS, in place of the control plane's gateway
	demand   *signin.Demand
	got      chan *http.Request // what the App got
	address  string
}

var testKey = signin.KeyOf([]byte(strings.Repeat("k", 32)))

func newSignedIn(t *testing.T, change ...func(*signin.Demand)) *signedIn {
	t.Helper()
	s := &signedIn{t: t, provider: openidtest.New(t, time.Now), handler: gateway.NewHandler(nil, zerolog.Nop()), got: make(chan *http.Request, 100)}
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.got <- r
		_, _ = w.Write([]byte("the App"))
	}))
	t.Cleanup(app.Close)
	s.address = strings.TrimPrefix(app.URL, "http://")
	s.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if gatewaywire.Dropped(name) {
				delete(r.Header, name)
			}
		}
		r.Header.Set("X-Real-Ip", "192.0.2.1")
		s.handler.ServeHTTP(w, r)
	}))
	s.server.StartTLS()
	t.Cleanup(s.server.Close)
	provider, err := signin.NewOpenID(s.secret(), egress.Guard{Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Hosts: egress.EveryHost}, time.Now)
	require.NoError(t, err)
	tokens, err := signin.ParseTokens(map[string][]byte{"bot": []byte(tokenOfBot + "\n")})
	require.NoError(t, err)
	s.demand = &signin.Demand{
		App: "shop/web", Key: testKey, Provider: provider, ProviderID: provider.ID(), Emails: []string{"alice@example.com"}, Tokens: tokens,
	}
	for _, f := range change {
		f(s.demand)
	}
	s.serve(gateway.Visitors{SignIn: s.demand})
	return s
}

func (s *signedIn) secret() map[string][]byte {
	return map[string][]byte{
		"issuer": []byte(s.provider.URL), "client-id": []byte(openidtest.Client), "client-secret": []byte(openidtest.Secret), "ca.crt": s.provider.CA(),
	}
}

func (s *signedIn) serve(v gateway.Visitors, more ...gateway.Route) {
	s.handler.Set(append(more, gateway.Route{Host: site, Path: "/", PathType: "Prefix", Addresses: []string{s.address}, Visitors: v}))
}

// browser returns a client with cookies that reaches the agent by any host's name, and the
// provider.
func (s *signedIn) browser() *http.Client {
	jar, err := cookiejar.New(nil)
	require.NoError(s.t, err)
	agent := s.server.Client().Transport.(*http.Transport).Clone()
	agent.TLSClientConfig.InsecureSkipVerify = true
	provider := s.provider.Client().Transport
	to := s.server.Listener.Addr().String()
	return &http.Client{Jar: jar, Timeout: 20 * time.Second, Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
		if "https://"+r.URL.Host == s.provider.URL {
			return provider.RoundTrip(r)
		}
		out := r.Clone(r.Context())
		out.Host = r.URL.Host
		out.URL.Host = to
		resp, err := agent.RoundTrip(out)
		if resp != nil {
			resp.Request = r
		}
		return resp, err
	})}
}

type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var page = http.Header{"Accept": {"text/html,*/*"}, "Sec-Fetch-Mode": {"navigate"}}

// get navigates to a target, and returns the last answer.
func (s *signedIn) get(c *http.Client, target string) *http.Response {
	s.t.Helper()
	return s.do(c, http.MethodGet, "https://"+site+target, page)
}

func (s *signedIn) do(c *http.Client, method, address string, header http.Header) *http.Response {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, address, http.NoBody)
	require.NoError(s.t, err)
	maps.Copy(r.Header, header)
	resp, err := c.Do(r)
	require.NoError(s.t, err)
	_ = resp.Body.Close()
	return resp
}

func (s *signedIn) app() *http.Request {
	s.t.Helper()
	select {
	case r := <-s.got:
		return r
	default:
		s.t.Fatal("the App got no request")
		return nil
	}
}

func (s *signedIn) closed(why string) {
	s.t.Helper()
	assert.Empty(s.t, s.got, "the App got nothing: %s", why)
}

// cookies returns those that a browser sends to a host, by name.
func cookies(c *http.Client, host string) map[string]string {
	all := map[string]string{}
	for _, cookie := range c.Jar.Cookies(&url.URL{Scheme: "https", Host: host, Path: "/"}) {
		all[cookie.Name] = cookie.Value
	}
	return all
}

// statement verifies what the App is told of its visitor by the keys that the host publishes.
func (s *signedIn) statement(raw string) (claims map[string]any) {
	s.t.Helper()
	resp, err := s.browser().Get("https://" + site + signin.KeysPath)
	require.NoError(s.t, err)
	defer func() { _ = resp.Body.Close() }()
	assert.Equal(s.t, "application/jwk-set+json", resp.Header.Get("Content-Type"))
	var set jose.JSONWebKeySet
	require.NoError(s.t, json.NewDecoder(resp.Body).Decode(&set))
	require.Len(s.t, set.Keys, 1)
	assert.True(s.t, set.Keys[0].IsPublic())
	token, err := jose.ParseSigned(raw, []jose.SignatureAlgorithm{jose.ES256})
	require.NoError(s.t, err)
	payload, err := token.Verify(set.Keys[0])
	require.NoError(s.t, err)
	require.NoError(s.t, json.Unmarshal(payload, &claims))
	return claims
}

// TestSignIn goes the whole way: to the provider, back to where the visitor was, and out again.
func TestSignIn(t *testing.T) {
	s := newSignedIn(t, func(d *signin.Demand) { d.Groups = []string{"platform", "absent"} })
	c := s.browser()
	resp := s.get(c, "/shop?item=1")
	require.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "https://"+site+"/shop?item=1", resp.Request.URL.String(), "back where the visitor was")
	r := s.app()
	assert.Equal(t, "/shop?item=1", r.RequestURI)
	assert.Equal(t, []string{"1234"}, r.Header["X-Forwarded-User"])
	assert.Equal(t, []string{"alice@example.com"}, r.Header["X-Forwarded-Email"])
	assert.Equal(t, []string{"platform"}, r.Header["X-Forwarded-Groups"], "those that the route names")
	assert.Empty(t, r.Header["Cookie"], "the App gets no session")
	claims := s.statement(r.Header.Get("Pipeops-Visitor"))
	assert.InDelta(t, time.Now().Add(5*time.Minute).Unix(), claims["exp"], 20)
	delete(claims, "exp")
	delete(claims, "iat")
	assert.Equal(t, map[string]any{"iss": "https://" + site, "aud": site, "sub": "1234", "email": "alice@example.com", "groups": []any{"platform"}}, claims)

	jar := c.Jar.Cookies(&url.URL{Scheme: "https", Host: site, Path: "/"})
	c.Jar.SetCookies(&url.URL{Scheme: "https", Host: site, Path: "/"}, []*http.Cookie{{Name: "theme", Value: "dark"}})
	require.Len(t, jar, 2)
	resp = s.do(c, http.MethodPost, "https://"+site+"/save", nil)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, []string{"theme=dark"}, s.app().Header["Cookie"], "other cookies are the App's")
	assert.EqualValues(t, 1, s.provider.Exchanged.Load())

	s.serve(gateway.Visitors{SignIn: s.changed(func(d *signin.Demand) { d.Emails, d.Groups = []string{"bob@example.com"}, nil })})
	assert.Equal(t, http.StatusUnauthorized, s.do(c, http.MethodPost, "https://"+site+"/save", nil).StatusCode, "a session counts only while its person is let in")
	assert.Equal(t, http.StatusForbidden, s.get(c, "/").StatusCode)
	s.serve(gateway.Visitors{SignIn: s.demand})
	assert.Equal(t, http.StatusOK, s.do(c, http.MethodPost, "https://"+site+"/save", nil).StatusCode)
	s.app()

	resp = s.do(c, http.MethodPost, "https://"+site+signin.SignOutPath, nil)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
	assert.Equal(t, map[string]string{"theme": "dark"}, cookies(c, site))
	assert.Equal(t, http.StatusUnauthorized, s.do(c, http.MethodPost, "https://"+site+"/save", nil).StatusCode)
	s.closed("signed out")
}

func (s *signedIn) changed(change func(*signin.Demand)) *signin.Demand {
	d := *s.demand
	change(&d)
	return &d
}

// TestSignIn_ServiceToken lets a client in that has no browser.
func TestSignIn_ServiceToken(t *testing.T) {
	s := newSignedIn(t)
	resp := s.do(s.browser(), http.MethodGet, "https://"+site+"/api", http.Header{signin.HeaderToken: {tokenOfBot}})
	require.Equal(t, http.StatusOK, resp.StatusCode)
	r := s.app()
	assert.Equal(t, "bot", r.Header.Get("X-Forwarded-User"))
	assert.Empty(t, r.Header[signin.HeaderToken], "the App gets no token")
	claims := s.statement(r.Header.Get("Pipeops-Visitor"))
	assert.Equal(t, "bot", claims["sub"])
	assert.Equal(t, true, claims["service"])

	s.serve(gateway.Visitors{SignIn: s.changed(func(d *signin.Demand) { d.Provider, d.ProviderID, d.Emails = nil, "", nil })})
	resp = s.get(s.browser(), "/")
	assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, "there is no provider to go to")
	assert.Equal(t, "token-wanted", resp.Header.Get(gatewaywire.HeaderFailed))
	for range 9 {
		assert.Equal(t, http.StatusUnauthorized, s.do(s.browser(), http.MethodGet, "https://"+site+"/", http.Header{signin.HeaderToken: {strings.Repeat("x", 40)}}).StatusCode)
	}
	s.do(s.browser(), http.MethodGet, "https://"+site+"/", http.Header{signin.HeaderToken: {"short"}})
	resp = s.do(s.browser(), http.MethodGet, "https://"+site+"/", http.Header{signin.HeaderToken: {tokenOfBot}})
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode, "guesses of an address are limited")
	s.closed("guesses")
}

// TestSignIn_SeveralTabs: sign-ins of one browser do not end each other, and each returns to its
// own page.
func TestSignIn_SeveralTabs(t *testing.T) {
	s := newSignedIn(t)
	c := s.browser()
	var returns []string
	c.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Path == signin.CallbackPath {
			returns = append(returns, r.URL.String())
			return http.ErrUseLastResponse
		}
		return nil
	}
	s.get(c, "/one")
	s.get(c, "/two")
	require.Len(t, returns, 2)
	c.CheckRedirect = nil
	for i, want := range []string{"/one", "/two"} {
		resp := s.do(c, http.MethodGet, returns[i], page)
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, want, resp.Request.URL.Path)
		s.app()
	}
}

// TestSignIn_ProviderAway: visitors learn that it is not their fault, those with a session notice
// nothing, and a service token works on.
func TestSignIn_ProviderAway(t *testing.T) {
	s := newSignedIn(t)
	known := s.browser()
	require.Equal(t, http.StatusOK, s.get(known, "/").StatusCode)
	s.app()
	s.provider.Away.Store(true)
	assert.Equal(t, http.StatusOK, s.get(known, "/").StatusCode)
	s.app()
	provider, err := signin.NewOpenID(s.secret(), egress.Guard{Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Hosts: egress.EveryHost}, time.Now)
	require.NoError(t, err)
	s.serve(gateway.Visitors{SignIn: s.changed(func(d *signin.Demand) { d.Provider = provider })})
	resp := s.get(s.browser(), "/")
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.Equal(t, "provider-away", resp.Header.Get(gatewaywire.HeaderFailed))
	assert.Equal(t, http.StatusOK, s.do(known, http.MethodGet, "https://"+site+"/", nil).StatusCode)
	s.app()
	unguarded, err := signin.NewOpenID(s.secret(), egress.Guard{Hosts: egress.EveryHost}, time.Now)
	require.NoError(t, err)
	s.provider.Away.Store(false)
	s.serve(gateway.Visitors{SignIn: s.changed(func(d *signin.Demand) { d.Provider = unguarded })})
	assert.Equal(t, http.StatusServiceUnavailable, s.get(s.browser(), "/").StatusCode, "no provider is on the agent's own machine")
	s.closed("no provider")
}

// BenchmarkSignIn_Session measures a request with a session.
func BenchmarkSignIn_Session(b *testing.B) {
	d := &signin.Demand{App: "shop/web", Key: testKey, ProviderID: "p", Provider: fixed{}, Emails: []string{"*@example.com"}}
	gate := signin.NewGate(d)
	cookie := signInBy(b, gate)
	b.ReportAllocs()
	for b.Loop() {
		r := httptest.NewRequest(http.MethodGet, "/", http.NoBody)
		r.Header.Set("Cookie", cookie)
		if verdict, err := gate.Admit(r, site, time.Now()); verdict != signin.Admitted || err != nil {
			b.Fatal(verdict, err)
		}
	}
}

// fixed is a provider without a network, for the benchmark.
type fixed struct{}

func (fixed) AuthorizeURL(_ context.Context, _, state, _, _ string) (string, error) {
	return "https://id.example.com/?state=" + state, nil
}

func (fixed) Exchange(context.Context, string, string, string, string) (signin.Person, error) {
	return signin.Person{Subject: "1", Email: "a@example.com", EmailVerified: true}, nil
}

// signInBy returns the cookies of a visitor who has signed in by the fixed provider.
func signInBy(t testing.TB, gate *signin.Gate) string {
	began := httptest.NewRecorder()
	require.NoError(t, gate.Begin(t.Context(), began, httptest.NewRequest(http.MethodGet, "/", http.NoBody), site, time.Now()))
	to, err := began.Result().Location()
	require.NoError(t, err)
	r := httptest.NewRequest(http.MethodGet, signin.CallbackPath+"?code=1&state="+to.Query().Get("state"), http.NoBody)
	r.AddCookie(began.Result().Cookies()[0])
	back, ok := gate.Returned(r, site, time.Now())
	require.True(t, ok)
	ended := httptest.NewRecorder()
	require.NoError(t, back.Finish(t.Context(), ended, time.Now()))
	made := ended.Result().Cookies()[0]
	return made.Name + "=" + made.Value
}
