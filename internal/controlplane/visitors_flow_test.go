package controlplane

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent/visitors"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	agentside "github.com/pipeops/pipeops-vm-agent/internal/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/gateway/signin"
	"github.com/pipeops/pipeops-vm-agent/internal/gatewaywire"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// visitedApp is an App behind the gateway whose visitors sign in by the control plane.
type visitedApp struct {
	p        *plane
	provider *fakeProvider
	agent    *cluster
	signIn   *visitors.SignIn
	handler  *agentside.Handler
	backend  string
	host     string
}

func newVisitedApp(t *testing.T) *visitedApp {
	t.Helper()
	a := &visitedApp{}
	a.p = start(t, func(c *Config) {
		a.provider = newFakeProvider(t, c.Now)
		visited(a.provider)(c)
		c.Gateway.Console = true
		c.HeartbeatInterval = time.Second
	})
	a.agent = a.p.registered("shop")
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "%s %s sees %s, %s", r.Method, r.URL, r.Header.Get("X-Forwarded-User"), r.Header.Get("X-Forwarded-Email"))
	}))
	t.Cleanup(backend.Close)
	a.backend = backend.Listener.Addr().String()
	a.handler = agentside.NewHandler(nil, zerolog.Nop())
	a.signIn = &visitors.SignIn{Changed: func() {}}
	a.host = controlapi.GivenHost("web", "n", a.agent.id.AgentID, visitedDomain)
	a.hear()
	a.admit("*")
	tun, _ := a.agent.connect(func(cfg *tunnel.Config) { cfg.TakePublic = true })
	await.Background(t, "the agent's end", func(ctx context.Context) error {
		_ = a.handler.Serve(ctx, tun.Public(), time.Second)
		return nil
	})
	serveGiven(a.p, a.agent, "web")
	return a
}

// hear has the agent beat, and take the answer.
func (a *visitedApp) hear() {
	a.p.t.Helper()
	answer, err := a.agent.client.Heartbeat(a.p.t.Context(), a.agent.heartbeat())
	require.NoError(a.p.t, err)
	a.signIn.Take(a.agent.client, answer.VisitorSignIn)
}

// admit has the App let in people with some emails.
func (a *visitedApp) admit(emails ...string) {
	a.p.t.Helper()
	provider, unmet := a.signIn.Source()
	require.Empty(a.p.t, unmet)
	demand := &signin.Demand{App: "n/web", Key: signin.KeyOf([]byte(strings.Repeat("k", 32))), Provider: provider, ProviderID: a.provider.URL, Emails: emails}
	a.handler.Set([]agentside.Route{{Host: a.host, Path: "/", PathType: "Prefix", Addresses: []string{a.backend}, Visitors: agentside.Visitors{SignIn: demand}}})
}

// browser returns a browser that reaches the gateway by any name below its domain, and the
// provider.
func (a *visitedApp) browser() *tab {
	a.p.t.Helper()
	gateway := a.p.listeners.https.Addr().String()
	roots := visitorRoots(a.p.t, a.p)
	roots.AddCert(a.provider.Certificate())
	jar, err := cookiejar.New(nil)
	require.NoError(a.p.t, err)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if strings.Contains(address, visitedDomain) {
				address = gateway
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
	a.p.t.Cleanup(transport.CloseIdleConnections)
	_, port, err := net.SplitHostPort(gateway)
	require.NoError(a.p.t, err)
	return &tab{a.p, "https://" + a.host + ":" + port, &http.Client{Jar: jar, Transport: transport, Timeout: time.Minute}}
}

// open navigates to an address, and returns where the browser is then, and what it shows.
func (b *tab) open(address string) (at, body string, status int) {
	b.p.t.Helper()
	r, err := http.NewRequestWithContext(b.p.t.Context(), http.MethodGet, address, http.NoBody)
	require.NoError(b.p.t, err)
	r.Header.Set("Accept", "text/html")
	r.Header.Set("Sec-Fetch-Mode", "navigate")
	r.Header.Set("Sec-Fetch-Dest", "document")
	resp, err := b.http.Do(r)
	require.NoError(b.p.t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(b.p.t, err)
	return resp.Request.URL.String(), string(text), resp.StatusCode
}

// press opens the page at which the visitor signs in, from the App's address, and presses the
// button.
func (a *visitedApp) press(b *tab, target string) (at, body string, status int) {
	a.p.t.Helper()
	at, body, status = b.open(b.home + target)
	require.Equal(a.p.t, http.StatusOK, status, body)
	require.True(a.p.t, strings.HasPrefix(at, visitorsOf{a.p.ControlPlane}.page().Page+"?"), at)
	require.Contains(a.p.t, body, "Sign in to "+a.host)
	found := beginLink.FindStringSubmatch(body)
	require.NotNil(a.p.t, found, body)
	return b.open(a.p.publicURL() + strings.ReplaceAll(found[1], "&amp;", "&"))
}

// TestVisitor_WholeWay: a visitor opens an App, is sent to the control plane and to the provider,
// and comes back to where he was. The App knows who he is.
func TestVisitor_WholeWay(t *testing.T) {
	a := newVisitedApp(t)
	b := a.browser()
	at, body, status := a.press(b, "/orders?page=2")
	require.Equal(t, http.StatusOK, status, body)
	assert.Equal(t, b.home+"/orders?page=2", at)
	assert.Equal(t, "GET /orders?page=2 sees 1234, alice@example.com", body)
	_, body, _ = b.open(b.home + "/again")
	assert.Equal(t, "GET /again sees 1234, alice@example.com", body, "with the session")
	_, body, _ = b.open(a.p.publicURL() + "/console/")
	assert.Contains(t, body, "<h1>Sign in</h1>", "no session in the console")

	stranger := a.browser()
	r := stranger.request(http.MethodPost, "/orders", "x")
	status, _ = stranger.send(r)
	assert.Equal(t, http.StatusUnauthorized, status, "no redirect for what is no page")

	a.admit("bob@example.com")
	_, body, status = b.open(b.home + "/again")
	require.Equal(t, http.StatusOK, status)
	assert.Contains(t, body, "Sign in to "+a.host, "the App lets in others now")
	_, body, status = a.press(a.browser(), "/")
	assert.Equal(t, http.StatusForbidden, status, body)
}

// TestVisitor_WholeWayOff: an agent whose control plane has a provider no more closes the route,
// and says what to do.
func TestVisitor_WholeWayOff(t *testing.T) {
	a := newVisitedApp(t)
	a.signIn.Take(a.agent.client, nil)
	provider, unmet := a.signIn.Source()
	assert.Nil(t, provider)
	assert.Contains(t, unmet, "ingress.visitors.signIn.secret")
}

// TestVisitor_ReturnsAtHost: what comes to the host without having begun there signs no one in.
func TestVisitor_ReturnsAtHost(t *testing.T) {
	a := newVisitedApp(t)
	b := a.browser()
	var returned string
	b.http.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if r.URL.Hostname() == a.host && r.URL.Path == gatewaywire.CallbackPath {
			returned = r.URL.String()
			return http.ErrUseLastResponse
		}
		return nil
	}
	_, _, status := a.press(b, "/")
	require.Equal(t, http.StatusSeeOther, status)
	b.http.CheckRedirect = nil
	for what, c := range map[string]struct {
		by     *tab
		change func(string) string
	}{
		"another browser":          {by: a.browser()},
		"another state":            {by: b, change: func(s string) string { return strings.Replace(s, "state=", "state=A", 1) }},
		"no state":                 {by: b, change: func(s string) string { return strings.Replace(s, "state=", "x=", 1) }},
		"a forged code, own state": {by: b, change: func(s string) string { return strings.Replace(s, "code=", "code="+rand.Text(), 1) }},
	} {
		address := returned
		if c.change != nil {
			address = c.change(address)
		}
		_, body, status := c.by.open(address)
		assert.NotContains(t, body, "sees 1234", what)
		assert.NotEqual(t, http.StatusSeeOther, status, what)
	}
	at, body, _ := b.open(returned)
	assert.Equal(t, b.home+"/", at)
	assert.Equal(t, "GET / sees 1234, alice@example.com", body, "the browser that began")
	_, body, _ = b.open(returned)
	assert.NotContains(t, body, "sees 1234", "twice")
}
