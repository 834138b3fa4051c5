package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/hosts"
	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	agentside "github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/gateway/signin"
	"github.com/pipeops/pipeops-vm-agent/test/openidtest"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

const (
	besides    = "other.example.org" // a host of the same agent, whose App wants the same sign-in
	unguarded  = "open.example.org"  // a host of the same agent, for everyone
	tokenOfBot = "bot-0123456789abcdef0123456789abcdef"
	tokenOther = "oth-0123456789abcdef0123456789abcdef"
)

// gated is a world whose Apps want their visitors to sign in at a provider that may misbehave.
type gated struct {
	*world
	provider *openidtest.Provider
	demand   signin.Demand
	address  string

	mu  sync.Mutex
	got []*http.Request // what the App at host and the one at besides got
}

func newGated(t *testing.T) *gated {
	t.Helper()
	g := &gated{world: newWorld(t, nil), provider: openidtest.New(t, time.Now)}
	for _, name := range []string{besides, unguarded} {
		serves(t, g.store, "a1", time.Now(), hosts.CNAME, name)
	}
	require.NoError(t, g.table.Refresh(t.Context()))
	g.address = g.backend(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.got = append(g.got, r.Clone(context.Background()))
	}))
	data := map[string][]byte{
		"issuer": []byte(g.provider.URL), "client-id": []byte(openidtest.Client), "client-secret": []byte(openidtest.Secret), "ca.crt": g.provider.CA(),
	}
	guard := egress.Guard{Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Hosts: egress.EveryHost}
	provider, err := signin.NewOpenID(data, guard, time.Now)
	require.NoError(t, err)
	tokens, err := signin.ParseTokens(map[string][]byte{"bot": []byte(tokenOfBot)})
	require.NoError(t, err)
	g.demand = signin.Demand{
		App: "shop/web", Key: signin.KeyOf([]byte("a secret of the agent with 32 bytes")), Provider: provider, ProviderID: provider.ID(),
		Emails: []string{"alice@example.com", "*@staff.example.com"}, Groups: []string{"admins"}, Tokens: tokens,
	}
	g.serve(g.demand)
	return g
}

// serve has the App at host demand something; the one at besides has another token.
func (g *gated) serve(d signin.Demand) {
	other := d
	other.App = "shop/other"
	other.Tokens, _ = signin.ParseTokens(map[string][]byte{"other": []byte(tokenOther)})
	g.handler.Set([]agentside.Route{
		{Host: host, Path: "/", PathType: "Prefix", Addresses: []string{g.address}, Visitors: agentside.Visitors{SignIn: &d}},
		{Host: besides, Path: "/", PathType: "Prefix", Addresses: []string{g.address}, Visitors: agentside.Visitors{SignIn: &other}},
		{Host: unguarded, Path: "/", PathType: "Prefix", Addresses: []string{g.backend(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))}},
	})
}

func (g *gated) reached() []*http.Request {
	g.mu.Lock()
	defer g.mu.Unlock()
	got := g.got
	g.got = nil
	return got
}

var navigation = []string{"Accept", "text/html", "Sec-Fetch-Mode", "navigate"}

// begin sends a browser to the provider, and returns its cookie, and the address to which the
// provider sends it back.
func (g *gated) begin(t *testing.T, at string) (cookie, back string) {
	t.Helper()
	resp, _ := do(t, g.client(true), request(t, http.MethodGet, "https://"+at+"/", nil, navigation...))
	require.Equal(t, http.StatusFound, resp.StatusCode)
	to, err := resp.Location()
	require.NoError(t, err)
	provider := g.provider.Client()
	provider.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	returned, _ := do(t, provider, request(t, http.MethodGet, to.String(), nil))
	return cookieOf(t, resp), returned.Header.Get("Location")
}

func cookieOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	require.Len(t, resp.Cookies(), 1)
	c := resp.Cookies()[0]
	assert.True(t, c.Secure && c.HttpOnly && c.Path == "/" && c.Domain == "" && c.SameSite == http.SameSiteLaxMode && strings.HasPrefix(c.Name, "__Host-"))
	return c.Name + "=" + c.Value
}

// session signs a visitor in, and returns the cookie.
func (g *gated) session(t *testing.T, at string) string {
	t.Helper()
	cookie, back := g.begin(t, at)
	resp, body := do(t, g.client(true), request(t, http.MethodGet, back, nil, "Cookie", cookie))
	require.Equal(t, http.StatusSeeOther, resp.StatusCode, body)
	return cookieOf(t, resp)
}

// TestSignIn_Hostile tries ways around the sign-in: by headers, paths, methods and protocols, by
// cookies and tokens of others, and by what a provider or a browser returns. None reaches the App.
func TestSignIn_Hostile(t *testing.T) {
	g := newGated(t)
	good, elsewhere := g.session(t, host), g.session(t, besides)
	name, value, _ := strings.Cut(good, "=")
	_, foreign, _ := strings.Cut(elsewhere, "=")
	foreignName, _, _ := strings.Cut(elsewhere, "=")
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}
	resp, _ := do(t, g.client(true), request(t, http.MethodGet, "https://"+host+"/", nil, "Cookie", good))
	require.Equal(t, http.StatusOK, resp.StatusCode)
	statement := g.reached()[0].Header.Get("Pipeops-Visitor")
	require.NotEmpty(t, statement)

	for what, header := range map[string][]string{
		"nothing":                   nil,
		"names":                     forged,
		"a forged statement":        {"Pipeops-Visitor", statement, "Pipeops_Visitor", statement, "X-Forwarded-Email", "alice@example.com", "X_Forwarded_Email", "alice@example.com"},
		"a password":                {"Authorization", "Basic YWxpY2U6YWxpY2U="},
		"a bearer":                  {"Authorization", "Bearer " + tokenOfBot},
		"a statement as bearer":     {"Authorization", "Bearer " + statement},
		"a statement as session":    {"Cookie", name + "=" + statement},
		"another method":            {"X-HTTP-Method-Override", "OPTIONS", "X-Original-Url", "/.pipeops/keys", "X-Rewrite-Url", "/.pipeops/keys"},
		"an empty token":            {"Pipeops-Service-Token", ""},
		"another host's token":      {"Pipeops-Service-Token", tokenOther},
		"a token and more":          {"Pipeops-Service-Token", tokenOfBot + "x"},
		"more and a token":          {"Pipeops-Service-Token", "x" + tokenOfBot},
		"a token in a list":         {"Pipeops-Service-Token", tokenOfBot + "," + tokenOfBot},
		"two tokens":                {"Pipeops-Service-Token", tokenOfBot, "Pipeops-Service-Token", tokenOfBot},
		"a wrong token and session": {"Pipeops-Service-Token", strings.Repeat("x", 40), "Cookie", good},
		"a token by another name":   {"Pipeops_Service_Token", tokenOfBot},
		"a token's name":            {"Pipeops-Service-Token", "bot"},
		"an empty session":          {"Cookie", name + "="},
		"a session cut short":       {"Cookie", name + "=" + value[:len(value)-4]},
		"a session with more":       {"Cookie", name + "=" + value + "AAAA"},
		"a session changed":         {"Cookie", name + "=" + value[:20] + string(value[20]^1) + value[21:]},
		"a session of no version":   {"Cookie", name + "=" + strings.TrimPrefix(value, "1.")},
		"a session of a version":    {"Cookie", name + "=2." + strings.TrimPrefix(value, "1.")},
		"a large session":           {"Cookie", name + "=1." + strings.Repeat("A", 30000)},
		"another host's session":    {"Cookie", elsewhere},
		"one under this name":       {"Cookie", name + "=" + foreign},
		"this under another name":   {"Cookie", foreignName + "=" + value},
		"a session twice":           {"Cookie", good + "; " + good},
		"a session in two lines":    {"Cookie", good, "Cookie", good},
		"a session and a wrong one": {"Cookie", good + "; " + name + "=x"},
		"a session in quotes":       {"Cookie", name + `="` + value + `"`},
		"another case":              {"Cookie", strings.ToLower(name) + "=" + value},
		"a name without the prefix": {"Cookie", strings.TrimPrefix(name, "__Host-") + "=" + value},
		"a WebSocket":               upgrade,
		"a gRPC call":               {"Content-Type", "application/grpc"},
		"a fetch of a page":         {"Accept", "text/html", "Sec-Fetch-Mode", "cors"},
	} {
		for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodOptions, http.MethodDelete} {
			c := g.client(what != "a WebSocket" && method != http.MethodPost)
			resp, _ := do(t, c, request(t, method, "https://"+host+"/secret", nil, header...))
			switch {
			case resp.Header.Get("Grpc-Status") != "":
				assert.Equal(t, "16", resp.Header.Get("Grpc-Status"), what)
			case resp.StatusCode != http.StatusTooManyRequests: // wrong tokens are limited
				assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, "%s %s", method, what)
				assert.Equal(t, `PipeOps-Sign-In realm="`+host+`"`, resp.Header.Get("WWW-Authenticate"))
			}
		}
	}
	assert.Empty(t, g.reached(), "nothing reaches the App")

	t.Run("targets", func(t *testing.T) { g.targets(t) })
	t.Run("a session opens one host", func(t *testing.T) {
		r := request(t, http.MethodGet, "https://"+host+"/", nil, "Cookie", good)
		r.Host = besides // on a connection for host
		resp, _ := do(t, g.client(true), r)
		assert.Contains(t, []int{http.StatusUnauthorized, http.StatusMisdirectedRequest}, resp.StatusCode)
		assert.Empty(t, g.reached())
	})
	t.Run("names beside a session", func(t *testing.T) {
		header := append([]string{"Cookie", good, "Connection", "Pipeops-Visitor, X-Forwarded-User", "Pipeops-Visitor", "x", "X_Forwarded_Email", "x", "X-Forwarded-Groups", "admins"}, forged...)
		resp, _ := do(t, g.client(false), request(t, http.MethodGet, "https://"+host+"/", nil, header...))
		require.Equal(t, http.StatusOK, resp.StatusCode)
		got := g.reached()[0]
		assert.Equal(t, []string{"1234"}, got.Header["X-Forwarded-User"])
		assert.Equal(t, []string{"alice@example.com"}, got.Header["X-Forwarded-Email"])
		assert.Len(t, got.Header["Pipeops-Visitor"], 1)
		for _, name := range []string{"X-Forwarded-Groups", "X_forwarded_email", "X_forwarded_user", "Remote-User", "Cookie"} {
			assert.Empty(t, got.Header[http.CanonicalHeaderKey(name)], name)
		}
	})
	t.Run("another key", func(t *testing.T) {
		d := g.demand
		d.Key = signin.KeyOf([]byte("another secret with at least 32 bytes"))
		g.serve(d)
		defer g.serve(g.demand)
		resp, _ := do(t, g.client(true), request(t, http.MethodGet, "https://"+host+"/", nil, "Cookie", good))
		assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, "of an agent that was installed again")
	})
	t.Run("another provider", func(t *testing.T) {
		d := g.demand
		d.ProviderID = "another"
		g.serve(d)
		defer g.serve(g.demand)
		resp, _ := do(t, g.client(true), request(t, http.MethodGet, "https://"+host+"/", nil, "Cookie", good))
		assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, "a session ends with its provider")
	})
	assert.Empty(t, g.reached())
}

// targets sends targets that a server may read as others.
func (g *gated) targets(t *testing.T) {
	for _, target := range []string{
		"/.pipeops/../secret", "/.pipeops/callback/../../secret", "/.pipeops/%2e%2e/secret", "/.pipeops%2f..%2fsecret", "/.pipeops/..%2fsecret",
		`/.pipeops/..\secret`, "//.pipeops/../secret", "/x/../.pipeops/keys/../../secret", "/.pipeops/;/../secret", "/%2e%70ipeops/../secret",
		"/.pipeops//secret", "/.PIPEOPS/keys", "/.pipeops/keys/", "/.pipeops/secret", "/.pipeops", "/.pipeops/callback", "/.pipeops/callback?state=x&code=y",
		"https://" + unguarded + "/secret", "http://" + host + "/secret", "//" + unguarded + "/secret", "/secret?/.pipeops/keys", "/secret#/.pipeops/keys",
	} {
		for _, method := range []string{"GET", "POST", "OPTIONS"} {
			conn := g.connect()
			_, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", method, target, host)
			require.NoError(t, err)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			require.NoError(t, err, target)
			if !strings.HasPrefix(target, "https://"+unguarded) { // that is the target's host, which lets in everyone
				assert.GreaterOrEqual(t, resp.StatusCode, 400, "%s %s", method, target)
			}
			_ = conn.Close()
		}
	}
	for _, line := range []string{"OPTIONS * HTTP/1.1", "TRACE / HTTP/1.1", "CONNECT " + host + ":443 HTTP/1.1", "PRI * HTTP/2.0", "GET / HTTP/1.0"} {
		conn := g.connect()
		_, err := fmt.Fprintf(conn, "%s\r\nHost: %s\r\nConnection: close\r\n\r\n", line, host)
		require.NoError(t, err)
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
			assert.GreaterOrEqual(t, resp.StatusCode, 400, line)
		}
		_ = conn.Close()
	}
	assert.Empty(t, g.reached(), "nothing reaches the App")
}

// TestSignIn_HostileReturns tries returns from the provider that must not sign anyone in.
func TestSignIn_HostileReturns(t *testing.T) {
	g := newGated(t)
	cookie, back := g.begin(t, host)
	other, stolen := g.begin(t, host)
	elsewhere, _ := g.begin(t, besides)
	with := func(change func(q url.Values)) string {
		u, err := url.Parse(back)
		require.NoError(t, err)
		q := u.Query()
		change(q)
		u.RawQuery = q.Encode()
		return u.String()
	}
	at := func(address, name string) string {
		return strings.Replace(address, "https://"+host, "https://"+name, 1)
	}
	code := func(address string) string { u, _ := url.Parse(address); return u.Query().Get("code") }
	for what, try := range map[string][2]string{
		"no cookie":                     {"", back},
		"another browser's cookie":      {other, back},
		"another host's cookie":         {elsewhere, back},
		"at another host":               {cookie, at(back, besides)},
		"at another host, its cookie":   {elsewhere, at(back, besides)},
		"no state":                      {cookie, with(func(q url.Values) { q.Del("state") })},
		"another state":                 {cookie, with(func(q url.Values) { q.Set("state", "x") })},
		"a state twice":                 {cookie, with(func(q url.Values) { q.Add("state", q.Get("state")) })},
		"a large state":                 {cookie, with(func(q url.Values) { q.Set("state", strings.Repeat("A", 5000)) })},
		"no code":                       {cookie, with(func(q url.Values) { q.Del("code") })},
		"two codes":                     {cookie, with(func(q url.Values) { q.Add("code", "x") })},
		"a code that was never made":    {cookie, with(func(q url.Values) { q.Set("code", "x") })},
		"a code of another sign-in":     {cookie, with(func(q url.Values) { q.Set("code", code(stolen)) })},
		"another provider's answer":     {cookie, with(func(q url.Values) { q.Set("iss", "https://evil.example.com") })},
		"a refusal":                     {cookie, with(func(q url.Values) { q.Set("error", "access_denied") })},
		"a cookie of two browsers":      {cookie + "; " + other, back},
		"the session's cookie as state": {cookie, with(func(q url.Values) { q.Set("state", "1."+q.Get("state")) })},
	} {
		header := []string{"Cookie", try[0]}
		resp, _ := do(t, g.client(true), request(t, http.MethodGet, try[1], nil, header...))
		assert.Contains(t, []int{http.StatusUnauthorized, http.StatusTooManyRequests}, resp.StatusCode, what)
		assert.Empty(t, resp.Cookies(), what)
	}
	g.serve(g.demand)
	resp, _ := do(t, g.client(true), request(t, http.MethodPost, back, nil, "Cookie", cookie))
	assert.Equal(t, http.StatusNotFound, resp.StatusCode, "by POST")
	assert.Empty(t, g.reached())
}

// TestSignIn_HostileProvider: a provider, or a person at a good one, gets nobody in who is not let
// in.
func TestSignIn_HostileProvider(t *testing.T) {
	type claims = map[string]any
	stranger := selfsigned.Key(t)
	g := newGated(t)
	for what, attack := range map[string]struct {
		claims claims
		sign   func(claims) string
		status int
	}{
		"let in":                   {status: 303},
		"another case":             {claims: claims{"email": "Alice@EXAMPLE.com"}, status: 303},
		"of the domain":            {claims: claims{"email": "zoe@staff.example.com"}, status: 303},
		"of a group":               {claims: claims{"email": nil, "groups": []string{"x", "admins"}}, status: 303},
		"another address":          {claims: claims{"email": "bob@example.com"}, status: 403},
		"unverified":               {claims: claims{"email_verified": false}, status: 403},
		"nothing about it":         {claims: claims{"email_verified": nil}, status: 403},
		"verified, another kind":   {claims: claims{"email_verified": 1}, status: 403},
		"an address in a list":     {claims: claims{"email": []string{"alice@example.com"}}, status: 403},
		"two addresses":            {claims: claims{"email": "bob@evil.example,alice@example.com"}, status: 403},
		"two domains":              {claims: claims{"email": "a@evil.example@staff.example.com"}, status: 403},
		"two domains the other":    {claims: claims{"email": "a@staff.example.com@evil.example"}, status: 403},
		"a longer domain":          {claims: claims{"email": "a@staff.example.com.evil.example"}, status: 403},
		"a subdomain":              {claims: claims{"email": "a@x.staff.example.com"}, status: 403},
		"a domain that ends so":    {claims: claims{"email": "a@evilstaff.example.com"}, status: 403},
		"no local part":            {claims: claims{"email": "@staff.example.com"}, status: 403},
		"a pattern":                {claims: claims{"email": "*@staff.example.com "}, status: 403},
		"a Kelvin sign for k":      {claims: claims{"email": "a@\u212Ataff.example.com"}, status: 403},
		"a long s":                 {claims: claims{"email": "a@\u017Ftaff.example.com"}, status: 403},
		"a Cyrillic a":             {claims: claims{"email": "\u0430lice@example.com"}, status: 403},
		"a line end":               {claims: claims{"email": "alice@example.com\r\nX-Forwarded-Groups: admins"}, status: 403},
		"a group with a comma":     {claims: claims{"email": nil, "groups": []string{"x,admins"}}, status: 403},
		"a group in another case":  {claims: claims{"email": nil, "groups": []string{"Admins"}}, status: 403},
		"groups in one text":       {claims: claims{"email": nil, "groups": "admins x"}, status: 403},
		"a subject with a newline": {claims: claims{"sub": "a\r\nb"}, status: 401},
		"a long subject":           {claims: claims{"sub": strings.Repeat("a", 300)}, status: 401},
		"no subject":               {claims: claims{"sub": nil}, status: 401},
		"another client's token":   {claims: claims{"aud": "another"}, status: 401},
		"several audiences":        {claims: claims{"aud": []string{openidtest.Client, "another"}}, status: 401},
		"another party":            {claims: claims{"azp": "another"}, status: 401},
		"another issuer":           {claims: claims{"iss": "https://evil.example.com"}, status: 401},
		"another nonce":            {claims: claims{"nonce": "another"}, status: 401},
		"expired":                  {claims: claims{"exp": time.Now().Add(-time.Minute).Unix()}, status: 401},
		"unsigned":                 {sign: func(c claims) string { return openidtest.Unsigned(t, c) }, status: 401},
		"another key":              {sign: func(c claims) string { return openidtest.Signed(t, jose.ES256, stranger, c) }, status: 401},
		"the secret as a key": {sign: func(c claims) string {
			return openidtest.Signed(t, jose.HS256, []byte(openidtest.Secret+openidtest.Secret), c)
		}, status: 401},
	} {
		t.Run(what, func(t *testing.T) {
			g.serve(signin.Demand{}) // ends what is counted of wrong sign-ins
			g.serve(g.demand)
			g.provider.Set(attack.claims, attack.sign, nil)
			cookie, back := g.begin(t, host)
			resp, body := do(t, g.client(true), request(t, http.MethodGet, back, nil, "Cookie", cookie, "Accept", "text/html"))
			assert.Equal(t, attack.status, resp.StatusCode, body)
			if attack.status != http.StatusSeeOther {
				assert.Empty(t, resp.Cookies())
			}
			again, _ := do(t, g.client(true), request(t, http.MethodGet, back, nil, "Cookie", cookie))
			assert.Equal(t, http.StatusUnauthorized, again.StatusCode, "a code works once")
			assert.Empty(t, g.reached())
		})
	}
}

// TestSignIn_ReturnsHere: after the sign-in, no visitor is sent to another host.
func TestSignIn_ReturnsHere(t *testing.T) {
	g := newGated(t)
	for _, target := range []string{"//evil.example.com/", `/\evil.example.com`, "/%5cevil.example.com", "/.//evil.example.com", "//user@evil.example.com/%2f..", "/" + strings.Repeat("a", 2000)} {
		conn := g.connect()
		_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAccept: text/html\r\nConnection: close\r\n\r\n", target, host)
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		require.Equal(t, http.StatusFound, resp.StatusCode, target)
		provider := g.provider.Client()
		provider.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		returned, _ := do(t, provider, request(t, http.MethodGet, resp.Header.Get("Location"), nil))
		ended, _ := do(t, g.client(true), request(t, http.MethodGet, returned.Header.Get("Location"), nil, "Cookie", cookieOf(t, resp)))
		require.Equal(t, http.StatusSeeOther, ended.StatusCode)
		to, err := url.Parse(ended.Header.Get("Location"))
		require.NoError(t, err)
		assert.Equal(t, "https", to.Scheme)
		assert.Equal(t, host, to.Host, target)
		assert.True(t, strings.HasPrefix(ended.Header.Get("Location"), "https://"+host+"/"))
	}
}
