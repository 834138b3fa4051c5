package controlplane

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/web/console"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
)

// TestOpenID_SignIn: the operator has the role of a group, and is named in the audit log.
func TestOpenID_SignIn(t *testing.T) {
	p, f := startWithFake(t)
	b := p.browserFor(f.Certificate())
	_, body := b.get("/console/")
	assert.Contains(t, body, "Sign in at "+f.Listener.Addr().String())
	var cookies []*http.Cookie
	b.http.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		cookies = append(cookies, r.Response.Cookies()...)
		return nil
	}
	status, body := b.get("/console/sign-in")
	require.Equal(t, http.StatusOK, status, body)
	assert.Contains(t, body, "openid/alice@example.com, operator")
	require.Len(t, cookies, 1, "what the browser keeps while it is away")
	c := cookies[0]
	assert.True(t, c.Secure && c.HttpOnly)
	assert.Equal(t, http.SameSiteLaxMode, c.SameSite)
	assert.Equal(t, 600, c.MaxAge)
	assert.Empty(t, b.loginSecret(), "it is used up")

	_, body = b.get("/console/")
	assert.Contains(t, body, "<h1>Fleet</h1>")
	assert.Contains(t, body, "openid/alice@example.com, operator")
	status, body = b.change("/console/enrolment/new", url.Values{"name": {"fleet"}, "uses": {"1"}, "ttl": {"1h"}})
	require.Equal(t, http.StatusOK, status, body)
	status, _ = b.get("/console/operators")
	assert.Equal(t, http.StatusForbidden, status, "the role is operator")
	var seen []string
	for _, r := range p.records(5) {
		if r.Operator == "openid/alice@example.com" {
			seen = append(seen, r.Command+" "+string(r.Outcome))
			assert.NotEmpty(t, r.RequestID)
		}
	}
	assert.Equal(t, []string{"list-operators refused", "create-token done", "sign-in-by-openid done"}, seen)
	status, _ = b.change("/console/leave", nil)
	assert.Equal(t, http.StatusUnauthorized, status)
	b.isOut("signed out")
	for role, groups := range map[string]any{administration.RoleViewer: "audit", administration.RoleOperator: []string{"audit", "platform", "staff"}} {
		f.set(map[string]any{"groups": groups}, nil, nil)
		_, body = p.browserFor(f.Certificate()).get("/console/sign-in")
		assert.Contains(t, body, "openid/alice@example.com, "+role, "the greatest role of the groups")
	}

	b = p.browserFor(f.Certificate())
	_, body = b.get("/console/sign-in")
	assert.Contains(t, body, "openid/alice@example.com")
	p.clock.forward(time.Hour + time.Minute)
	b.isOut("the ID token has expired")
}

// TestOpenID_RefusesTokens tries tokens and answers that a console must not take.
func TestOpenID_RefusesTokens(t *testing.T) {
	p, f := startWithFake(t)
	other := selfsigned.Key(t)
	type claims = map[string]any
	attacks := map[string]struct {
		claims claims
		sign   func(claims) string
		also   url.Values
		status int
		says   string
	}{
		"another audience":          {claims: claims{"aud": "another-client"}, status: 401, says: "audience"},
		"several audiences":         {claims: claims{"aud": []string{openIDClient, "other"}}, status: 401, says: "another client"},
		"another party":             {claims: claims{"azp": "another-client"}, status: 401, says: "another client"},
		"another issuer":            {claims: claims{"iss": "https://evil.example.com"}, status: 401, says: "different provider"},
		"an expired token":          {claims: claims{"exp": f.now().Add(-time.Minute).Unix()}, status: 401, says: "expired"},
		"a token of another login":  {claims: claims{"nonce": "another"}, status: 401, says: "nonce"},
		"no nonce":                  {claims: claims{"nonce": nil}, status: 401, says: "nonce"},
		"no subject":                {claims: claims{"sub": nil}, status: 401, says: "sub"},
		"an unsigned token":         {sign: func(c claims) string { return unsigned(t, c) }, status: 401, says: "not valid"},
		"another key":               {sign: func(c claims) string { return signed(t, jose.ES256, other, c) }, status: 401, says: "not valid"},
		"the secret as a key":       {sign: func(c claims) string { return signed(t, jose.HS256, []byte(openIDSecret+openIDSecret), c) }, status: 401, says: "not valid"},
		"no token":                  {sign: func(claims) string { return "" }, status: 401, says: "not valid"},
		"another provider's answer": {also: url.Values{"iss": {"https://evil.example.com"}}, status: 401, says: "Another identity provider"},
		"the provider refuses":      {also: url.Values{"error": {"access_denied"}, "error_description": {"<b>no\x1b[1m"}}, status: 401, says: "access_denied &lt;b&gt;no[1m"},
		"an unverified address":     {claims: claims{"email_verified": false}, status: 403, says: "has not verified the email address alice@example.com"},
		"nothing about the address": {claims: claims{"email_verified": nil}, status: 403, says: "email_verified"},
		"no address":                {claims: claims{"email": nil}, status: 403, says: "The ID token has no claim email"},
		"a name that hides":         {claims: claims{"email": "a\u202elice@example.com"}, status: 403, says: "cannot be shown"},
		"no groups":                 {claims: claims{"groups": nil}, status: 403, says: "The ID token has no claim groups"},
		"groups of another kind":    {claims: claims{"groups": claims{"a": 1}}, status: 403, says: "neither a list"},
		"no group with a role":      {claims: claims{"groups": []string{"staff"}}, status: 403, says: "No group of alice@example.com has a role here; the claim groups has staff"},
	}
	for name, attack := range attacks {
		f.set(attack.claims, attack.sign, attack.also)
		b := p.browserFor(f.Certificate())
		status, body := b.get("/console/sign-in")
		assert.Equal(t, attack.status, status, name)
		assert.Contains(t, body, attack.says, name)
		assert.Empty(t, b.kept(console.Cookie), name)
		b.isOut(name)
		p.clock.forward(2 * time.Second) // wrong sign-ins of an address are limited
	}
	refused := 0
	for _, r := range p.records(len(attacks)) {
		if r.Command == "sign-in-by-openid" && r.Outcome == runnerapi.AuditRefused {
			refused++
			assert.NotEmpty(t, r.Message)
		}
	}
	assert.Equal(t, len(attacks), refused, "each refusal is in the audit log")
}

// TestOpenID_LoginBoundToBrowser: nobody can have another's browser sign in (CSRF at login), and no
// code works twice.
func TestOpenID_LoginBoundToBrowser(t *testing.T) {
	p, f := startWithFake(t)
	attacker, victim := p.browserFor(f.Certificate()), p.browserFor(f.Certificate())
	back := attacker.stopAtReturn()
	status, _ := attacker.get("/console/sign-in")
	require.Equal(t, http.StatusSeeOther, status)
	require.NotEmpty(t, *back)
	kept := attacker.loginSecret()
	require.NotEmpty(t, kept)

	status, body := victim.get(*back)
	assert.Equal(t, http.StatusUnauthorized, status, "without its own login")
	assert.Contains(t, body, "did not begin in this browser")
	stopped := victim.stopAtReturn()
	_, _ = victim.get("/console/sign-in")
	status, _ = victim.get(*back)
	assert.Equal(t, http.StatusUnauthorized, status, "with its own login")
	victim.isOut("the victim")
	status, _ = victim.get(*stopped)
	assert.Equal(t, http.StatusUnauthorized, status, "the attempt has used up the victim's login")
	for _, query := range []string{"", "?code=x", "?state=&code=x", "?state=x&code=x"} {
		status, _ = attacker.get("/console/sign-in/return" + query)
		assert.Equal(t, http.StatusUnauthorized, status, query)
	}

	attacker.keep(kept)
	status, _ = attacker.get(*back)
	require.Equal(t, http.StatusOK, status, "the browser that began")
	again := p.browserFor(f.Certificate())
	again.keep(kept)
	status, body = again.get(*back)
	assert.Equal(t, http.StatusUnauthorized, status, "the code was used")
	assert.Contains(t, body, "invalid_grant")
	again.isOut("a replayed code")
}

// keep gives the browser what another one kept while it was at the provider.
func (b *tab) keep(secret string) {
	b.p.t.Helper()
	b.http.Jar.SetCookies(b.at(), []*http.Cookie{{Name: console.Cookie + "-login", Value: secret, Path: "/", Secure: true}})
}

// TestOpenID_NoOpenRedirect: the sign-in leads to the provider and the console, whatever the
// address says.
func TestOpenID_NoOpenRedirect(t *testing.T) {
	p, f := startWithFake(t)
	b := p.browserFor(f.Certificate())
	evil := url.QueryEscape("https://evil.example.com/")
	b.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	location := func(path string, change ...func(*http.Request)) string {
		r := b.request(http.MethodGet, path, "")
		for _, c := range change {
			c(r)
		}
		resp, err := b.http.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.Header.Get("Location")
	}
	to, err := url.Parse(location("/console/sign-in?next=" + evil + "&redirect_uri=" + evil + "&state=x"))
	require.NoError(t, err)
	assert.Equal(t, f.URL+"/authorize", to.Scheme+"://"+to.Host+to.Path)
	assert.Equal(t, []string{p.Advertised().API + "/console/sign-in/return"}, to.Query()["redirect_uri"])
	assert.NotContains(t, to.RawQuery, "evil")
	assert.Equal(t, "/console/enter", location("/console/sign-in", func(r *http.Request) {
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Set("Sec-Fetch-Mode", "navigate")
		r.Header.Set("Sec-Fetch-Dest", "document")
	}), "a link of another site begins nothing")
	assert.Equal(t, p.Advertised().API+"/console/enter", location("/console/sign-in", func(r *http.Request) { r.Host = "localhost:1" }),
		"under another name of the control plane, which the provider does not know")
	r := b.request(http.MethodGet, "/console/sign-in", "")
	r.Host = "evil.example.com"
	status, _ := b.send(r)
	assert.Equal(t, http.StatusMisdirectedRequest, status)

	b.get("/console/hosts")
	b.http.CheckRedirect = nil
	resp, err := b.http.Do(b.request(http.MethodGet, "/console/sign-in", ""))
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, "0; url=/console/hosts", resp.Header.Get("Refresh"), "the page that was opened before")
	b.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	assert.Equal(t, "/console/", location("/console/sign-in?next="+evil), "a browser with a session")
}

// TestOpenID_ProviderAway: the control plane starts, and the page says what is wrong.
func TestOpenID_ProviderAway(t *testing.T) {
	var f *fakeProvider
	p := start(t, func(c *Config) {
		f = newFakeProvider(t, c.Now)
		f.away.Store(true)
		c.OpenID = openIDSettings(f.URL, f.Certificate())
	})
	b := p.browserFor(f.Certificate())
	status, body := b.get("/console/sign-in")
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Contains(t, body, "The identity provider "+f.URL+" cannot be used: 404")
	status, body = p.signedIn(p.operator("alice", administration.RoleViewer)).get("/console/")
	assert.Equal(t, http.StatusOK, status, "certificates work")
	assert.NotEmpty(t, body)
	f.away.Store(false)
	p.clock.forward(3 * time.Second)
	status, body = b.get("/console/sign-in")
	assert.Equal(t, http.StatusOK, status, body)
}

// TestOpenID_Off: the console shows no button, and opens nothing.
func TestOpenID_Off(t *testing.T) {
	p := start(t)
	b := p.browser()
	_, body := b.get("/console/")
	assert.NotContains(t, body, "Sign in at")
	for _, path := range []string{"/console/sign-in", "/console/sign-in/return?state=x&code=x"} {
		_, body = b.get(path)
		assert.Contains(t, body, `name="code"`, "the page for a code")
	}
}
