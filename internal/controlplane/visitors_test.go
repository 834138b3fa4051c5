package controlplane

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/internal/web/console"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

const visitedDomain = "apps.example.com"

// visited has the control plane serve public hosts, and operators sign in at a provider.
func visited(f *fakeProvider) func(*Config) {
	return func(c *Config) {
		c.OpenID = openIDSettings(f.URL, f.Certificate())
		c.Gateway = GatewayConfig{Domain: visitedDomain, CA: GatewayInternal, HTTPSListen: "127.0.0.1:0", NoHTTP3: true}
	}
}

// startVisited runs a control plane with a provider of the test's own, and an agent that serves a
// host.
func startVisited(t *testing.T) (p *plane, f *fakeProvider, shop *cluster, host string) {
	t.Helper()
	p = start(t, func(c *Config) {
		f = newFakeProvider(t, c.Now)
		visited(f)(c)
	})
	shop = p.registered("shop")
	return p, f, shop, serveGiven(p, shop, "web")
}

// serveGiven has an agent serve the given host of an App.
func serveGiven(p *plane, agent *cluster, app string) (host string) {
	p.t.Helper()
	host = controlapi.GivenHost(app, "n", agent.id.AgentID, visitedDomain)
	tell(agent, routeTo(host, "/", app))
	await.Until(p.t, "the host is served", func() bool { return p.public.serves(host) })
	return host
}

// visit is what an agent has of a sign-in.
type visit struct{ host, state, verifier string }

func newVisitTo(host string) visit {
	return visit{host: host, state: rand.Text(), verifier: rand.Text() + rand.Text()}
}

func (v visit) challenge() string {
	sum := sha256.Sum256([]byte(v.verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// page is the path at which the visitor signs in.
func (v visit) page(p *plane) string {
	p.t.Helper()
	return strings.TrimPrefix(controlapi.VisitorPage(visitorsOf{p.ControlPlane}.page().Page, v.host, v.state, v.challenge()), p.publicURL())
}

var beginLink = regexp.MustCompile(`href="(/console/visitor/sign-in\?[^"]*)"`)

// ask opens the page at which a visitor signs in, and returns the path of its button.
func (b *tab) ask(v visit) string {
	b.p.t.Helper()
	status, body := b.get(v.page(b.p))
	require.Equal(b.p.t, http.StatusOK, status, body)
	require.Contains(b.p.t, body, "Sign in to "+v.host)
	found := beginLink.FindStringSubmatch(body)
	require.NotNil(b.p.t, found, body)
	return html.UnescapeString(found[1])
}

// stopAt has the browser stop where it would leave the control plane for a host, and returns the
// address.
func (b *tab) stopAt(host string) (address *url.URL) {
	address = &url.URL{}
	b.http.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Hostname() == host {
			*address = *r.URL
			return http.ErrUseLastResponse
		}
		return nil
	}
	return address
}

// visitorSignsIn signs a visitor in, and returns the code with which the browser comes to the host.
func (b *tab) visitorSignsIn(v visit) (code string) {
	b.p.t.Helper()
	at := b.stopAt(v.host)
	status, body := b.get(b.ask(v))
	require.Equal(b.p.t, http.StatusSeeOther, status, body)
	require.Equal(b.p.t, v.state, at.Query().Get("state"))
	return at.Query().Get("code")
}

func (v visit) request(code string) controlapi.VisitorRequest {
	return controlapi.VisitorRequest{Host: v.host, Code: code, Verifier: v.verifier}
}

// TestVisitor_SignsIn: the agent learns who the visitor is, by a code in the address of its host.
// The visitor has no session here.
func TestVisitor_SignsIn(t *testing.T) {
	p, f, shop, host := startVisited(t)
	f.set(map[string]any{"groups": []string{"guests"}, "name": "Alice"}, nil, nil) // no group with a role
	b := p.browserFor(f.Certificate())
	v := newVisitTo(host)
	at := b.stopAt(host)
	status, body := b.get(b.ask(v))
	require.Equal(t, http.StatusSeeOther, status, body)
	assert.Equal(t, visitorsOf{p.ControlPlane}.callback(host), at.Scheme+"://"+at.Host+at.Path)
	assert.Equal(t, gatewaywire.CallbackPath, at.Path)
	assert.Equal(t, v.state, at.Query().Get("state"))
	assert.Len(t, at.Query(), 2)
	b.isOut("a visitor is no operator")
	assert.Empty(t, b.kept(console.Cookie))

	answer, err := shop.client.Visitor(t.Context(), v.request(at.Query().Get("code")))
	require.NoError(t, err)
	assert.Equal(t, controlapi.Visitor{Subject: "1234", Email: "alice@example.com", EmailVerified: true, Name: "Alice", Groups: []string{"guests"}}, answer)
	beat, err := shop.client.Heartbeat(t.Context(), shop.heartbeat())
	require.NoError(t, err)
	assert.Equal(t, &controlapi.VisitorSignIn{Page: p.Advertised().API + "/console/visitor", Provider: f.URL}, beat.VisitorSignIn)
	var seen []string
	for _, r := range p.records(1) {
		seen = append(seen, r.Operator+" "+r.Command+" "+r.Name+" "+string(r.Outcome))
	}
	assert.Equal(t, []string{"visitor/alice@example.com sign-in-visitor " + host + " done"}, seen)
}

// TestVisitor_Claims: what the provider does not say, or says in another form, proves nothing.
func TestVisitor_Claims(t *testing.T) {
	p, f, shop, host := startVisited(t)
	type claims = map[string]any
	long := strings.Repeat("x", 1000)
	for name, c := range map[string]struct {
		claims claims
		want   controlapi.Visitor
	}{
		"an address that is not verified": {claims{"email_verified": false, "groups": nil}, controlapi.Visitor{Email: "alice@example.com"}},
		"nothing but a subject":           {claims{"email": nil, "email_verified": nil, "groups": nil}, controlapi.Visitor{}},
		"one group":                       {claims{"email": nil, "email_verified": nil, "groups": "shop"}, controlapi.Visitor{Groups: []string{"shop"}}},
		"other kinds":                     {claims{"email": 1, "email_verified": "yes", "groups": claims{"a": 1}, "name": []int{1}}, controlapi.Visitor{}},
		"too long, and hidden":            {claims{"email": long, "email_verified": nil, "groups": []string{long, "a\u202e", "b", ""}, "name": "\u202e"}, controlapi.Visitor{Groups: []string{"b"}}},
	} {
		f.set(c.claims, nil, nil)
		v := newVisitTo(host)
		answer, err := shop.client.Visitor(t.Context(), v.request(p.browserFor(f.Certificate()).visitorSignsIn(v)))
		require.NoError(t, err, name)
		c.want.Subject = "1234"
		assert.Equal(t, c.want, answer, name)
	}
}

// TestVisitor_RefusesTokens tries ID tokens that prove no one.
func TestVisitor_RefusesTokens(t *testing.T) {
	p, f, _, host := startVisited(t)
	type claims = map[string]any
	for name, c := range map[string]struct {
		claims claims
		sign   func(claims) string
		also   url.Values
		says   string
	}{
		"another audience":     {claims: claims{"aud": "another-client"}, says: "audience"},
		"another sign-in":      {claims: claims{"nonce": "another"}, says: "nonce"},
		"unsigned":             {sign: func(c claims) string { return unsigned(t, c) }, says: "not valid"},
		"a sub that hides":     {claims: claims{"sub": "\u202e1234"}, says: "its sub"},
		"a long sub":           {claims: claims{"sub": strings.Repeat("1", 256)}, says: "its sub"},
		"the provider refuses": {also: url.Values{"error": {"access_denied"}}, says: "access_denied"},
	} {
		f.set(c.claims, c.sign, c.also)
		b := p.browserFor(f.Certificate())
		b.stopAt(host)
		status, body := b.get(b.ask(newVisitTo(host)))
		assert.Equal(t, http.StatusUnauthorized, status, name)
		assert.Contains(t, body, c.says, name)
		assert.Contains(t, strings.ToLower(body), "open the page of the app again", name)
	}
}

// TestVisitor_Code: a code is good once, for a minute, for the agent, the host and the verifier
// that it was issued for.
func TestVisitor_Code(t *testing.T) {
	p, f, shop, host := startVisited(t)
	other := p.registered("other")
	otherHost := serveGiven(p, other, "blog")
	second := controlapi.GivenHost("second", "n", shop.id.AgentID, visitedDomain)
	tell(shop, routeTo(host, "/", "web"), routeTo(second, "/", "second"))
	await.Until(t, "the second host is served", func() bool { return p.public.serves(second) })
	b := p.browserFor(f.Certificate())
	for name, c := range map[string]struct {
		by     *cluster
		change func(*controlapi.VisitorRequest)
		late   time.Duration
	}{
		"by another agent":             {by: other},
		"by another agent, its host":   {by: other, change: func(r *controlapi.VisitorRequest) { r.Host = otherHost }},
		"for another host of it":       {change: func(r *controlapi.VisitorRequest) { r.Host = second }},
		"for a host in upper case":     {change: func(r *controlapi.VisitorRequest) { r.Host = strings.ToUpper(r.Host) }},
		"late":                         {late: time.Minute},
		"with another verifier":        {change: func(r *controlapi.VisitorRequest) { r.Verifier = newVisitTo(host).verifier }},
		"with the challenge":           {change: func(r *controlapi.VisitorRequest) { r.Verifier = visit{verifier: r.Verifier}.challenge() }},
		"without a verifier":           {change: func(r *controlapi.VisitorRequest) { r.Verifier = "" }},
		"forged":                       {change: func(r *controlapi.VisitorRequest) { r.Code = rand.Text() }},
		"its beginning":                {change: func(r *controlapi.VisitorRequest) { r.Code = r.Code[:len(r.Code)-1] }},
		"more than it":                 {change: func(r *controlapi.VisitorRequest) { r.Code += "A" }},
		"empty":                        {change: func(r *controlapi.VisitorRequest) { r.Code = "" }},
		"what the database has of one": {change: func(r *controlapi.VisitorRequest) { sum := sha256.Sum256([]byte(r.Code)); r.Code = string(sum[:8]) }},
	} {
		v := newVisitTo(host)
		code := b.visitorSignsIn(v)
		req := v.request(code)
		if c.change != nil {
			c.change(&req)
		}
		by := shop
		if c.by != nil {
			by = c.by
		}
		p.clock.forward(c.late)
		answer, err := by.client.Visitor(t.Context(), req)
		require.Error(t, err, name)
		refused, _ := problem.Of(err)
		assert.Contains(t, []problem.Code{problem.Forbidden, problem.Invalid}, refused.Code, name)
		assert.NotContains(t, err.Error(), code, name)
		assert.Empty(t, answer, name)
		p.clock.forward(10 * time.Second) // sign-ins of a person are limited
	}

	v := newVisitTo(host)
	req := v.request(b.visitorSignsIn(v))
	_, err := shop.client.Visitor(t.Context(), req)
	require.NoError(t, err)
	_, err = shop.client.Visitor(t.Context(), req)
	assert.True(t, problem.Is(err, problem.Forbidden), "twice: %v", err)
	v = newVisitTo(host)
	req = v.request(b.visitorSignsIn(v))
	wrong := req
	wrong.Verifier = newVisitTo(host).verifier
	_, err = shop.client.Visitor(t.Context(), wrong)
	require.Error(t, err)
	_, err = shop.client.Visitor(t.Context(), req)
	assert.True(t, problem.Is(err, problem.Forbidden), "after a guess: %v", err)
	resp := p.call(p.client(), http.MethodPost, "/v1/agent/visitor", `{"host":"`+host+`","code":"x","verifier":"`+v.verifier+`"}`)
	assert.True(t, problem.Is(refusal(resp), controlapi.CodeCertificateUnknown), "without a certificate")
}

// TestVisitor_BoundToBrowser: no one signs another's browser in, nor has it sign in without asking.
func TestVisitor_BoundToBrowser(t *testing.T) {
	p, f, _, host := startVisited(t)
	attacker, victim := p.browserFor(f.Certificate()), p.browserFor(f.Certificate())
	v := newVisitTo(host)
	begin := attacker.ask(v)
	victim.stopAt(host)
	refused := func(b *tab, path, what string) {
		t.Helper()
		status, body := b.get(path)
		assert.Equal(t, http.StatusUnauthorized, status, what)
		assert.Contains(t, body, "did not begin in this browser", what)
	}
	refused(victim, begin, "the button of another browser's page")
	own := victim.ask(newVisitTo(host))
	refused(victim, begin, "the same, in a browser that has a page open")
	mixed, err := url.ParseQuery(strings.TrimPrefix(own, "/console/visitor/sign-in?"))
	require.NoError(t, err)
	other, err := url.ParseQuery(strings.TrimPrefix(begin, "/console/visitor/sign-in?"))
	require.NoError(t, err)
	mixed.Set("request", other.Get("request"))
	refused(victim, "/console/visitor/sign-in?"+mixed.Encode(), "one request with the confirmation of another")
	refused(victim, "/console/visitor/sign-in?"+url.Values{"request": {other.Get("request")}}.Encode(), "without a confirmation")

	back := attacker.stopAtReturn()
	status, _ := attacker.get(begin)
	require.Equal(t, http.StatusSeeOther, status)
	require.Contains(t, *back, "code=")
	refused(victim, *back, "the return of another browser")
	refused(p.browserFor(f.Certificate()), *back, "the same, in a browser that has no page open")
	status, _ = attacker.get(strings.Replace(*back, "state=", "state=x", 1))
	assert.Equal(t, http.StatusUnprocessableEntity, status, "another note")
	refused(attacker, *back+"x", "another state")
	attacker.stopAt(host)
	status, _ = attacker.get(*back)
	assert.Equal(t, http.StatusSeeOther, status)
	status, body := attacker.get(*back)
	assert.Equal(t, http.StatusUnauthorized, status, "twice")
	assert.Contains(t, body, "invalid_grant")
}

// TestVisitor_NoOpenRedirect: a visitor is sent to hosts of Apps and to the provider, and nowhere
// else.
func TestVisitor_NoOpenRedirect(t *testing.T) {
	p, f, _, host := startVisited(t)
	b := p.browserFor(f.Certificate())
	b.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	good := newVisitTo(host)
	for name, c := range map[string]struct {
		change func(url.Values)
		status int
	}{
		"a host of no one":         {func(q url.Values) { q.Set("host", "evil.example.com") }, 404},
		"the control plane":        {func(q url.Values) { q.Set("host", "127.0.0.1") }, 404},
		"a host with a port":       {func(q url.Values) { q.Set("host", host+":8443") }, 422},
		"a host with a path":       {func(q url.Values) { q.Set("host", host+"/x") }, 422},
		"a host with a user":       {func(q url.Values) { q.Set("host", host+"@evil.example.com") }, 422},
		"a host in upper case":     {func(q url.Values) { q.Set("host", strings.ToUpper(host)) }, 422},
		"a host with a line":       {func(q url.Values) { q.Set("host", host+"\nevil.example.com") }, 422},
		"no host":                  {func(q url.Values) { q.Del("host") }, 422},
		"no state":                 {func(q url.Values) { q.Del("state") }, 422},
		"a state that says more":   {func(q url.Values) { q.Set("state", "x&code=y") }, 422},
		"a long state":             {func(q url.Values) { q.Set("state", strings.Repeat("x", 2049)) }, 422},
		"no challenge":             {func(q url.Values) { q.Del("challenge") }, 422},
		"a challenge of no digest": {func(q url.Values) { q.Set("challenge", "x") }, 422},
	} {
		at, err := url.Parse(good.page(p))
		require.NoError(t, err)
		q := at.Query()
		c.change(q)
		status, body := b.get(at.Path + "?" + q.Encode())
		assert.Equal(t, c.status, status, name)
		assert.NotContains(t, body, "/console/visitor/sign-in", name)
	}
	r := b.request(http.MethodGet, good.page(p), "")
	r.Host = "localhost:1"
	resp, err := b.http.Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, p.Advertised().API+good.page(p), resp.Header.Get("Location"), "the name that the provider knows")
	status, _ := b.post(good.page(p), nil)
	assert.Equal(t, http.StatusMethodNotAllowed, status)
	framed := b.request(http.MethodGet, good.page(p), "")
	framed.Header.Set("Sec-Fetch-Site", "cross-site")
	framed.Header.Set("Sec-Fetch-Mode", "navigate")
	framed.Header.Set("Sec-Fetch-Dest", "iframe")
	status, _ = b.send(framed)
	assert.Equal(t, http.StatusForbidden, status, "in a frame of another site")
}

// TestVisitor_Limited: a person has not more than some sign-ins at a time, and an operator's page
// does not count what visitors do wrong.
func TestVisitor_Limited(t *testing.T) {
	p, f, _, host := startVisited(t)
	b := p.browserFor(f.Certificate())
	b.stopAt(host)
	status, body := 0, ""
	for range 31 {
		status, body = b.get(b.ask(newVisitTo(host)))
	}
	assert.Equal(t, http.StatusTooManyRequests, status)
	assert.Contains(t, body, "You have signed in too often")
	for range 110 {
		status, _ = b.get("/console/visitor")
	}
	assert.Equal(t, http.StatusTooManyRequests, status, "wrong requests of an address")
	b = p.browserFor(f.Certificate())
	status, body = b.get("/console/sign-in")
	assert.Equal(t, http.StatusOK, status, body)
}

// TestVisitor_SeveralControlPlanes: any of them continues what another began, and a code is good
// once at all of them together.
func TestVisitor_SeveralControlPlanes(t *testing.T) {
	f := newGroup(t)
	provider := newFakeProvider(t, time.Now)
	with := func(c *Config) {
		lenient(c)
		visited(provider)(c)
		c.Gateway.HTTPSPort, c.Gateway.Console = 443, true
	}
	first, second := f.start(with), f.start(with)
	agent := first.registered("shop")
	host := serveGiven(first.plane, agent, "web")
	await.Until(t, "the other one serves the host", func() bool { return second.public.serves(host) })
	b := first.browserFor(provider.Certificate())
	v := newVisitTo(host)
	assert.Equal(t, visitorsOf{first.ControlPlane}.page(), visitorsOf{second.ControlPlane}.page())
	assert.Equal(t, "https://"+host+gatewaywire.CallbackPath, visitorsOf{first.ControlPlane}.callback(host))
	secret := rand.Text()
	query, err := url.ParseQuery(strings.TrimPrefix(controlapi.VisitorPage("", v.host, v.state, v.challenge()), "?"))
	require.NoError(t, err)
	site, begin, err := first.visitors.Ask(secret, query)
	require.NoError(t, err)
	assert.Equal(t, host, site)
	address, err := second.visitors.Begin(t.Context(), secret, begin)
	require.NoError(t, err)
	resp, err := b.noRedirect().Get(address)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	returned, err := url.Parse(resp.Header.Get("Location"))
	require.NoError(t, err)
	assert.Equal(t, "https://console.apps.example.com/console"+web.ReturnPath, returned.Scheme+"://"+returned.Host+returned.Path)
	address, err = first.visitors.Return(t.Context(), secret, returned.Query())
	require.NoError(t, err)
	at, err := url.Parse(address)
	require.NoError(t, err)
	req := v.request(at.Query().Get("code"))
	outcomes := make(chan error, 2)
	for _, m := range []*member{first, second} {
		go func() {
			_, err := agent.at(m).client.Visitor(t.Context(), req)
			outcomes <- err
		}()
	}
	refused := 0
	for range 2 {
		if err := await.Receive(t, outcomes, "an answer"); err != nil {
			assert.True(t, problem.Is(err, problem.Forbidden), err)
			refused++
		}
	}
	assert.Equal(t, 1, refused)
}

// noRedirect returns the browser's client without redirects.
func (b *tab) noRedirect() *http.Client {
	client := *b.http
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &client
}

// TestVisitor_ProviderAway: the visitor is told to try again, and no one is recorded as refused.
func TestVisitor_ProviderAway(t *testing.T) {
	p, f, _, host := startVisited(t)
	f.away.Store(true)
	b := p.browserFor(f.Certificate())
	status, body := b.get(b.ask(newVisitTo(host)))
	assert.Equal(t, http.StatusServiceUnavailable, status)
	assert.Contains(t, body, "cannot be used")
	assert.NotContains(t, body, "pipeops-controlplane", "what operators do is not for visitors")
	for _, r := range p.records(0) {
		assert.NotEqual(t, "sign-in-visitor", r.Command)
	}
}

// TestVisitor_Off: without a provider, or without a gateway, there is no page, and agents know.
func TestVisitor_Off(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no provider": func(c *Config) {
			c.Gateway = GatewayConfig{Domain: visitedDomain, CA: GatewayInternal, HTTPSListen: "127.0.0.1:0", NoHTTP3: true}
		},
		"no gateway": func(c *Config) {
			f := newFakeProvider(t, c.Now)
			c.OpenID = openIDSettings(f.URL, f.Certificate())
		},
	} {
		p := start(t, change)
		shop := p.registered("shop")
		beat, err := shop.client.Heartbeat(t.Context(), shop.heartbeat())
		require.NoError(t, err, name)
		assert.Nil(t, beat.VisitorSignIn, name)
		_, body := p.browser().get("/console/visitor?" + url.Values{"host": {"a.example.com"}, "state": {"x"}, "challenge": {newVisitTo("").challenge()}}.Encode())
		assert.Contains(t, body, `name="code"`, "%s: the page of operators", name)
		_, err = shop.client.Visitor(t.Context(), newVisitTo("a.example.com").request("x"))
		assert.True(t, problem.Is(err, problem.Forbidden), "%s: %v", name, err)
	}
}
