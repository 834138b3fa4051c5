package controlplane

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web/console"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// tab is a browser in which an operator has signed in to the console, without a certificate.
type tab struct {
	p    *plane
	home string // where the pages are, without their path
	http *http.Client
}

// browser returns a browser without a session.
func (p *plane) browser() *tab {
	p.t.Helper()
	client := p.client()
	var err error
	client.Jar, err = cookiejar.New(nil)
	require.NoError(p.t, err)
	return &tab{p, p.Advertised().API, client}
}

// code returns an operator's code for signing in.
func (p *plane) code(c administration.Credentials) string {
	p.t.Helper()
	made, err := operatorapi.CreateConsoleCode.Do(p.t.Context(), p.as(c), operatorapi.ConsoleCodeInput{})
	require.NoError(p.t, err)
	assert.Equal(p.t, p.consoleURL()+"/enter", made.Address)
	return made.Code
}

// signedIn returns a browser with an operator's session.
func (p *plane) signedIn(c administration.Credentials) *tab {
	p.t.Helper()
	b := p.browser()
	b.signIn(c)
	return b
}

// signIn opens an operator's session.
func (b *tab) signIn(c administration.Credentials) {
	b.p.t.Helper()
	status, body := b.post("/console/enter", url.Values{"code": {b.p.code(c)}})
	require.Equal(b.p.t, http.StatusOK, status, body)
	require.Contains(b.p.t, body, "<h1>Fleet</h1>")
}

func (b *tab) send(r *http.Request) (status int, body string) {
	b.p.t.Helper()
	resp, err := b.http.Do(r)
	require.NoError(b.p.t, err)
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(b.p.t, err)
	return resp.StatusCode, string(text)
}

func (b *tab) request(method, path, body string) *http.Request {
	b.p.t.Helper()
	r, err := http.NewRequestWithContext(b.p.t.Context(), method, b.home+path, strings.NewReader(body))
	require.NoError(b.p.t, err)
	return r
}

func (b *tab) get(path string) (status int, body string) {
	b.p.t.Helper()
	return b.send(b.request(http.MethodGet, path, ""))
}

func (b *tab) post(path string, form url.Values) (status int, body string) {
	b.p.t.Helper()
	r := b.request(http.MethodPost, path, form.Encode())
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.send(r)
}

// csrf returns the token of the session's forms.
func (b *tab) csrf() string {
	b.p.t.Helper()
	_, body := b.get("/console/runners")
	_, rest, found := strings.Cut(body, `name="csrf" value="`)
	require.True(b.p.t, found, body)
	token, _, _ := strings.Cut(rest, `"`)
	return token
}

// change posts a form of the session.
func (b *tab) change(path string, form url.Values) (status int, body string) {
	b.p.t.Helper()
	if form == nil {
		form = url.Values{}
	}
	form.Set("csrf", b.csrf())
	return b.post(path, form)
}

// at is where the browser keeps its cookies.
func (b *tab) at() *url.URL {
	b.p.t.Helper()
	at, err := url.Parse(b.home)
	require.NoError(b.p.t, err)
	return at
}

// isOut fails the test if the browser sees more than the page for signing in, or can change
// anything.
func (b *tab) isOut(why string) {
	b.p.t.Helper()
	for _, path := range []string{"/console/runners", "/console/agents/shop", "/console/tokens/x/revoke", "/console/"} { // the last one is where a sign-in leads
		status, body := b.get(path)
		assert.Equal(b.p.t, http.StatusOK, status, why) // of the page to which it is redirected
		assert.Contains(b.p.t, body, "<h1>Sign in</h1>", why)
		assert.NotContains(b.p.t, body, "Sign out", why)
	}
	r := b.request(http.MethodGet, "/console/live/fleet", "")
	r.Header.Set("Sec-Fetch-Dest", "empty")
	status, _ := b.send(r)
	assert.Equal(b.p.t, http.StatusUnauthorized, status, why)
	status, _ = b.post("/console/enrolment/new", url.Values{"uses": {"1"}, "csrf": {"x"}})
	assert.Equal(b.p.t, http.StatusUnauthorized, status, why)
}

// stream is what follows an open page.
type stream struct {
	t     *testing.T
	lines chan string
}

func (b *tab) stream(path string) stream {
	b.p.t.Helper()
	b.http.Timeout = 0
	resp, err := b.http.Do(b.request(http.MethodGet, path, ""))
	require.NoError(b.p.t, err)
	b.p.t.Cleanup(func() { _ = resp.Body.Close() })
	require.Equal(b.p.t, "text/event-stream", resp.Header.Get("Content-Type"))
	s := stream{b.p.t, make(chan string, 1000)}
	go func() {
		defer close(s.lines)
		for scan := bufio.NewScanner(resp.Body); scan.Scan(); {
			s.lines <- scan.Text()
		}
	}()
	return s
}

// shows waits for a line with a text.
func (s stream) shows(text string) {
	s.t.Helper()
	await.Until(s.t, "the page shows "+text, func() bool {
		select {
		case line, open := <-s.lines:
			require.True(s.t, open, "the stream ended")
			return strings.Contains(line, text)
		default:
			return false
		}
	})
}

func (s stream) ends() {
	s.t.Helper()
	await.Until(s.t, "the stream ends", func() bool {
		select {
		case line, open := <-s.lines:
			assert.NotContains(s.t, line, "revoked")
			return !open
		default:
			return false
		}
	})
}

func TestConsoleCode_UsedOnce(t *testing.T) {
	p := start(t)
	alice := p.operator("alice", administration.RoleOperator)
	b := p.browser()
	b.isOut("before")
	code := p.code(alice)
	b.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	status, _ := b.get("/console/enter?token=" + code + "&code=" + code)
	assert.Equal(t, http.StatusOK, status, "the page with the form")
	r := b.request(http.MethodPost, "/console/enter", url.Values{"code": {code}}.Encode())
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := b.http.Do(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusSeeOther, resp.StatusCode)
	assert.Equal(t, "/console/", resp.Header.Get("Location"))
	require.Len(t, resp.Cookies(), 1)
	c := resp.Cookies()[0]
	assert.Equal(t, console.Cookie, c.Name)
	assert.True(t, c.Secure && c.HttpOnly)
	assert.Equal(t, http.SameSiteStrictMode, c.SameSite)
	assert.Equal(t, "/", c.Path)
	assert.Empty(t, c.Domain)
	b.http.CheckRedirect = nil
	_, body := b.get("/")
	assert.Contains(t, body, "alice, operator", "the address itself leads to the console")
	assert.NotContains(t, body, code)

	again := p.browser()
	status, body = again.post("/console/enter", url.Values{"code": {code}})
	assert.Equal(t, http.StatusUnauthorized, status)
	assert.Contains(t, body, "used before")
	late := p.code(alice)
	p.clock.forward(6 * time.Minute)
	status, _ = again.post("/console/enter", url.Values{"code": {late}})
	assert.Equal(t, http.StatusUnauthorized, status)
}

// TestConsole_AtGateway: the gateway serves the console and the webhooks of Git servers, and
// nothing else, at its own host.
func TestConsole_AtGateway(t *testing.T) {
	p := start(t, func(c *Config) {
		c.Gateway = GatewayConfig{Domain: "apps.example.com", Console: true, CA: GatewayInternal, HTTPSListen: "127.0.0.1:0"}
	})
	gateway := p.listeners.https.Addr().String()
	b := p.browser()
	b.home = "https://console.apps.example.com:" + strings.TrimPrefix(gateway, "127.0.0.1:")
	b.http.Transport = &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: visitorRoots(t, p), MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", gateway)
		},
	}
	b.isOut("before")
	alice := p.operator("alice", administration.RoleOperator)
	b.signIn(alice)
	shop := p.registered("shop")
	b.stream("/console/live/fleet").shows("shop")
	hook, err := p.snapshotClient(p.issue("ann", "")).SetSourceWebhook(t.Context(), shop.id.AgentID, runnerapi.Key{Namespace: "shop", Name: "web"})
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(hook.URL, b.home+"/v1/receivers/"), hook.URL)
	assert.Equal(t, http.StatusAccepted, gitServer{p: p, hook: hook, by: b.http.Transport}.push(pushed))
	_, body := b.get("/")
	assert.Contains(t, body, "alice, operator", "the address itself leads to the console")
	for _, path := range []string{operatorapi.Prefix + "agents", "/healthz", "/v1/agents"} {
		status, _ := b.get(path)
		assert.Equal(t, http.StatusNotFound, status, path)
	}
	other := b.request(http.MethodGet, "/console/", "")
	other.Host = "127.0.0.1"
	status, _ := b.send(other)
	assert.Equal(t, http.StatusNotFound, status, "the host of the API is not the gateway's")
	p.signedIn(alice) // at the API's own port, too
}

func TestConsole_LimitsFailedSignIns(t *testing.T) {
	for name, guess := range map[string]func(b *tab) (int, string){
		"codes":     func(b *tab) (int, string) { return b.post("/console/enter", url.Values{"code": {"wrong"}}) },
		"by OpenID": func(b *tab) (int, string) { return b.get("/console/sign-in/return?state=x&code=x") },
	} {
		p, f := startWithFake(t)
		b := p.browserFor(f.Certificate())
		code, last := p.code(p.operator("alice", administration.RoleViewer)), 0
		for range 11 {
			last, _ = guess(b)
		}
		assert.Equal(t, http.StatusTooManyRequests, last, name)
		status, _ := b.post("/console/enter", url.Values{"code": {code}})
		assert.Equal(t, http.StatusTooManyRequests, status, name)
		status, _ = b.get("/console/sign-in")
		assert.Equal(t, http.StatusTooManyRequests, status, name)
	}
}

// TestConsoleSession_Ends: authn and operators test every way to end a session. A copy of its
// cookie ends with it.
func TestConsoleSession_Ends(t *testing.T) {
	p := start(t)
	bob := p.operator("bob", administration.RoleOperator)
	for name, end := range map[string]func(b *tab){
		"signed out": func(b *tab) {
			status, _ := b.change("/console/leave", nil)
			assert.Equal(t, http.StatusUnauthorized, status)
		},
		"signed out everywhere": func(b *tab) {
			unused, form := p.code(bob), url.Values{"operator": {"bob"}}
			status, _ := b.change("/console/operators/end-sessions", form)
			assert.Equal(t, http.StatusForbidden, status, "only an admin signs operators out")
			admin := p.signedIn(p.operator("alice", administration.RoleAdmin))
			_, body := admin.get("/console/operators")
			assert.Contains(t, body, "/console/operators/end-sessions?operator=bob")
			_, body = admin.change("/console/operators/end-sessions", form)
			assert.Contains(t, body, "signed out everywhere")
			assert.NotContains(t, body, "end-sessions?operator=bob")
			status, _ = p.browser().post("/console/enter", url.Values{"code": {unused}})
			assert.Equal(t, http.StatusUnauthorized, status, "a code that was not used yet")
		},
	} {
		b, stolen := p.signedIn(bob), p.browser()
		stolen.http.Jar.SetCookies(b.at(), b.http.Jar.Cookies(b.at()))
		_, body := stolen.get("/console/")
		require.Contains(t, body, "bob, operator")
		end(b)
		b.isOut(name)
		stolen.isOut(name)
	}
}

// fields has something for each field of any form.
func fields() url.Values {
	return url.Values{
		"name": {"new"}, "labels": {"a=b"}, "uses": {"1"}, "host": {"new.example.com"}, "agent": {"nobody"}, "url": {"https://pager.example.com/"},
		"role": {administration.RoleViewer}, "id": {"none"}, "namespace": {"none"}, "app": {"none"}, "replicas": {"1"}, "revision": {"1"}, "confirm": {"none"},
		"operator": {"nobody"}, "runner": {"none"},
	}
}

// TestConsole_Roles tries every page and every change as each role.
func TestConsole_Roles(t *testing.T) {
	p := start(t)
	p.registered("shop")
	p.issue("ops", "env=prod")
	_, err := operatorapi.CreateWebhook.Do(t.Context(), p.first(), operatorapi.CreateWebhookInput{Body: operatorapi.CreateWebhookBody{Name: "pager", WebhookSettings: operatorapi.WebhookSettings{URL: "https://pager.example.com/"}}})
	require.NoError(t, err)
	needs := map[string]string{}
	for _, call := range operatorapi.Calls() {
		needs[call.ID] = call.Role
	}
	for _, role := range administration.Roles {
		b := p.signedIn(p.operator("the-"+role, role))
		p.actAs("the-"+role, "ops")
		for _, path := range []string{"/", "/agents/shop", "/agents/shop/audit", "/agents/shop/nodes", "/enrolment", "/runners", "/hosts", "/webhooks", "/webhooks/pager", "/announcements", "/releases", "/ca", "/replicas"} {
			status, body := b.get("/console" + path)
			assert.Equal(t, http.StatusOK, status, "%s: %s: %s", role, path, body)
			if role == administration.RoleViewer {
				for _, button := range []string{"/new\"", "/revoke\"", "/label?", "/approve", "/rotate", "/delete", "/take\"", "/withdraw"} {
					assert.NotContains(t, body, button, "%s: a viewer sees no change", path)
				}
			}
		}
		for _, path := range []string{"/operators", "/audit", "/audit?verify=1"} {
			status, _ := b.get("/console" + path)
			assert.Equal(t, role == administration.RoleAdmin, status == http.StatusOK, "%s: %s: %d", role, path, status)
		}
		for path, call := range console.Changes() {
			at, allowed := "/console"+strings.ReplaceAll(path, "{name}", "none"), administration.Includes(role, needs[call])
			status, body := b.get(at)
			assert.Equal(t, allowed, status == http.StatusOK, "%s: ask %s: %d", role, at, status)
			if allowed {
				assert.Regexp(t, "The same with pipeops-(controlplane|runner)", body, at)
			}
			status, body = b.change(at, fields())
			assert.Equal(t, !allowed, status == http.StatusForbidden, "%s: do %s: %d: %s", role, at, status, body)
			if status >= http.StatusBadRequest {
				p.clock.forward(10 * time.Second) // refusals are limited
			}
		}
	}
	refused := 0
	for _, r := range p.records(1) {
		if r.Operator == "the-viewer" && r.Outcome == runnerapi.AuditRefused && r.Code == problem.Forbidden {
			refused++
		}
	}
	assert.GreaterOrEqual(t, refused, len(console.Changes()), "each refusal is in the audit log")
}

// TestConsole_ChangesAudited: a change is the operator's own in the registry and in the audit log,
// and is carried out once.
func TestConsole_ChangesAudited(t *testing.T) {
	p := start(t)
	b := p.signedIn(p.operator("alice", administration.RoleOperator))
	form := url.Values{"name": {"fleet"}, "uses": {"5"}, "ttl": {"1h"}, "labels": {"env=prod region=eu"}, "approve": {"true"}, "key": {"k1"}}
	status, _ := b.post("/console/enrolment/new", form)
	assert.Equal(t, http.StatusForbidden, status, "a form without the session's token")
	status, body := b.change("/console/enrolment/new", form)
	require.Equal(t, http.StatusOK, status, body)
	assert.Contains(t, body, "CLUSTER_NAME=NAME bash")
	status, _ = b.change("/console/enrolment/new", form)
	assert.Equal(t, http.StatusConflict, status, "the same form twice makes one token")
	tokens, err := p.admin.Tokens.List(t.Context())
	require.NoError(t, err)
	require.Len(t, tokens, 1)
	assert.Equal(t, map[string]string{"env": "prod", "region": "eu"}, tokens[0].Labels)
	assert.True(t, tokens[0].Approve)

	status, body = b.change("/console/tokens/"+tokens[0].ID+"/revoke", nil)
	require.Equal(t, http.StatusOK, status, body)
	assert.Contains(t, body, "The token is revoked.")
	status, body = b.change("/console/enrolment/new", url.Values{"uses": {"-1"}})
	assert.Equal(t, http.StatusUnprocessableEntity, status, body)

	seen := map[string]bool{}
	for _, r := range p.records(8) {
		if r.Operator == "alice" {
			seen[r.Command+" "+string(r.Outcome)] = true
			assert.NotEmpty(t, r.Certificate)
			assert.NotEmpty(t, r.RequestID)
		}
	}
	for _, want := range []string{"create-console-code done", "create-token done", "revoke-token done", "create-token refused"} {
		assert.True(t, seen[want], "%s: %v", want, seen)
	}
}

// TestConsole_WaitsForMachine: the page with the token shows the machine that registers with it.
func TestConsole_WaitsForMachine(t *testing.T) {
	p := start(t)
	b := p.signedIn(p.operator("alice", administration.RoleOperator))
	status, body := b.change("/console/enrolment/new", url.Values{"cluster": {"shop $(id)"}, "uses": {"2"}, "approve": {"true"}})
	require.Equal(t, http.StatusOK, status, body)
	text := html.UnescapeString(body)
	for _, want := range []string{
		"/releases/latest/download/install.sh | AGENT_TOKEN=", " CLUSTER_NAME='shop $(id)' bash", "helm install pipeops-agent ", "--set agent.clusterName='shop $(id)'",
		"kubectl apply -f https://", "--from-literal=PIPEOPS_CONTROL_PLANE_URL=https://", "Waiting for your machine…",
	} {
		assert.Contains(t, text, want)
	}
	tokens, err := p.admin.Tokens.List(t.Context())
	require.NoError(t, err)
	live := "/console/live/tokens/" + tokens[0].ID
	assert.Contains(t, body, `hx-sse:connect="`+live+`"`)
	_, secret, _ := strings.Cut(text, "AGENT_TOKEN=")
	secret, _, _ = strings.Cut(secret, " ")
	token, err := controlapi.ParseToken(secret)
	require.NoError(t, err)

	page := b.stream(live)
	page.shows("Waiting for your machine")
	c := p.waiting("bakery", token)
	page.shows("bakery waits for an approval")
	_, err = p.admin.Enrolments.Approve(t.Context(), p.pending()[0].ID)
	require.NoError(t, err)
	require.NoError(t, c.register(token))
	page.shows(`<a href="/console/agents/` + c.id.AgentID + `">bakery</a> is registered.`)
}

// TestConsole_SearchesAudit: a change has one row. A file has the rows of the page's filter.
func TestConsole_SearchesAudit(t *testing.T) {
	p := start(t)
	b := p.signedIn(p.operator("alice", administration.RoleAdmin))
	status, body := b.change("/console/enrolment/new", url.Values{"name": {"fleet"}, "uses": {"5"}})
	require.Equal(t, http.StatusOK, status, body)
	status, body = b.change("/console/tokens/none/revoke", nil)
	require.Equal(t, http.StatusNotFound, status, body)
	p.records(6) // of these, and of the sign-in
	status, body = b.get("/console/audit?by=ALICE&command=token")
	require.Equal(t, http.StatusOK, status, body)
	assert.Equal(t, 1, strings.Count(body, ">create-token</td>"), body)
	assert.Equal(t, 1, strings.Count(body, ">revoke-token</td>"), body)
	for _, query := range []string{"by=nobody", "app=x", "outcome=x", "since=x", "until=2000-01-01", "before=x&command=x"} {
		status, body = b.get("/console/audit?" + query)
		assert.Equal(t, http.StatusOK, status, query)
		assert.Contains(t, body, "No call matches", query)
	}
	_, body = b.get("/console/audit?command=token&outcome=refused&format=csv")
	rows, err := csv.NewReader(strings.NewReader(body)).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 2)
	assert.Equal(t, []string{"alice", "revoke-token", "none", "refused"}, rows[1][3:7])
	_, body = b.get("/console/audit?command=create-token&format=json")
	var file struct{ Items []operatorapi.OperatorRecord }
	require.NoError(t, json.Unmarshal([]byte(body), &file))
	require.Len(t, file.Items, 1)
	assert.Equal(t, "alice", file.Items[0].Operator)
	assert.Equal(t, file.Items[0].Seq-1, file.Items[0].Began)

	p.registered("shop")
	status, body = b.get("/console/agents/shop/audit?format=csv")
	require.Equal(t, http.StatusOK, status)
	assert.True(t, strings.HasPrefix(body, "number,began,time,runner,"), body)
}

// TestConsole_FindsAgents: store and operators test searches themselves.
func TestConsole_FindsAgents(t *testing.T) {
	p := start(t)
	p.labelled("shop-1", map[string]string{"env": "prod_eu"})
	p.registered("shop-2")
	for _, in := range []operatorapi.ListAgentsInput{
		{AgentFilter: operatorapi.AgentFilter{Search: "SHOP prod_"}}, {AgentFilter: operatorapi.AgentFilter{Selector: "env in (prod_eu)"}},
		{AgentFilter: operatorapi.AgentFilter{Selector: "env"}}, {Order: "urgency", Limit: 1}, {AgentFilter: operatorapi.AgentFilter{State: "pending"}, Offset: 0, Limit: 1},
	} {
		list, err := operatorapi.ListAgents.Do(t.Context(), p.first(), in)
		require.NoError(t, err)
		require.Len(t, list.Agents, 1, "%+v", in)
		assert.Equal(t, "shop-1", list.Agents[0].Name)
	}
	_, body := p.signedIn(p.operator("alice", administration.RoleViewer)).get("/console/?find=env%3Dprod_eu")
	assert.Contains(t, body, "shop-1")
	assert.NotContains(t, body, "shop-2")
	_, body = p.signedIn(p.operator("bob", administration.RoleViewer)).get("/console/?find=" + url.QueryEscape("env notin (prod_eu, b) shop"))
	assert.Contains(t, body, "shop-2")
	assert.NotContains(t, body, "shop-1")
}

// TestConsole_Grid has as many agents as the grid shows, and one more.
func TestConsole_Grid(t *testing.T) {
	p := start(t)
	require.NoError(t, p.store.Update(t.Context(), func(tx *store.Tx) error {
		for n := range administration.MaxAgentStates + 1 {
			a := store.Agent{ID: fmt.Sprintf("agent%011d", n), Name: fmt.Sprintf("shop-%05d", n), ClusterUID: fmt.Sprint(n), State: announce.StateOnline, Labels: map[string]string{"env": "prod"}}
			switch {
			case n == 0:
				a.Labels = map[string]string{"team": "a"}
			case n%100 == 1:
				a.State = announce.StateOffline
			case n%100 == 2:
				a.Labels["env"], a.Components = "test", []announce.Component{{Name: "loki"}}
			}
			if err := tx.InsertAgent(t.Context(), a); err != nil {
				return err
			}
		}
		return nil
	}))
	b := p.signedIn(p.operator("alice", administration.RoleViewer))
	status, body := b.get("/console/?view=grid&by=env")
	require.Equal(t, http.StatusOK, status, body)
	assert.Less(t, len(body), 1_000_000)
	assert.Contains(t, body, "1 agent is not shown")
	assert.Contains(t, body, `<option value="env" selected>By env</option><option value="team">By team</option>`)
	assert.Contains(t, body, `<ul class="squares"><li><a href="agents/agent00000000001" class="bad"><span>shop-00001: offline</span></a>`, "the worst is first")
	assert.Contains(t, body, `<ul class="squares"><li><a href="agents/agent00000000002" class="warn"><span>shop-00002: online, component not ready</span></a>`)
	assert.Regexp(t, `(?s)<h2>prod .*<h2>test .*<h2>Without env <span class="muted">1</span></h2>\s+<ul class="squares"><li><a href="agents/agent00000000000"><span>shop-00000: online</span></a></ul>`, body)
	assert.NotContains(t, body, "hx-sse:connect", "it is not live")
	assert.Contains(t, body, "As of ")

	_, body = b.get("/console/?view=grid&find=team%3Da")
	assert.Equal(t, 1, strings.Count(body, `href="agents/`))
	assert.Contains(t, body, `<a href="/console/?find=team%3Da">List</a>`, "the search is kept")
	assert.NotContains(t, body, "not shown")
	_, body = b.get("/console/?view=grid&show=wrong&by=nothing")
	assert.Equal(t, 200, strings.Count(body, `href="agents/`))
	assert.Contains(t, body, "Without nothing")
	for _, query := range []string{"show=nowhere", "find=nowhere"} {
		_, body = b.get("/console/?view=grid&" + query)
		assert.Contains(t, body, "No agent matches", query)
		assert.NotContains(t, body, `href="agents/`, query)
	}
}

// TestConsole_UnknownFilter: a filter that is unknown gives an empty list.
func TestConsole_UnknownFilter(t *testing.T) {
	p := start(t)
	p.registered("shop")
	b := p.signedIn(p.operator("alice", administration.RoleViewer))
	for _, query := range []string{"show=nowhere", "find=a%3Db%3Dc", "find=%21", "find=env+in+%28", "find=rank%3E1"} {
		status, body := b.get("/console/?" + query)
		assert.Equal(t, http.StatusOK, status, query)
		assert.NotContains(t, body, "/console/agents/", query)
	}
}

// TestConsole_Search finds agents, Apps and pages by a part of their names.
func TestConsole_Search(t *testing.T) {
	p := start(t)
	shop := p.registered("shop")
	p.happened(shop.id.AgentID, "webshop", announce.AppProgressing, announce.AppHealthy)
	b := p.signedIn(p.operator("alice", administration.RoleViewer))
	_, body := b.get("/console/search?find=SHOP")
	assert.Contains(t, body, `<a href="/console/agents/`+shop.id.AgentID+`">shop</a>`)
	assert.Contains(t, body, `?namespace=production&amp;app=webshop">production/webshop</a>`)
	_, body = b.get("/console/search?find=hosts")
	assert.Contains(t, body, `<li><a href="/console/hosts">Public hosts</a>`)
	_, body = b.get("/console/search?find=operators")
	assert.NotContains(t, body, `<li><a href="/console/operators">Operators</a></li></ul>`, "a viewer may not see them")
	assert.Contains(t, body, "Nothing was found")
	_, body = b.get("/console/search")
	assert.Contains(t, body, "What do you look for?")
}

// TestConsole_FollowsFleet: an open page shows a change, and ends with the session.
func TestConsole_FollowsFleet(t *testing.T) {
	p := start(t)
	p.registered("shop")
	b := p.signedIn(p.operator("alice", administration.RoleViewer))
	page := b.stream("/console/live/fleet?")
	page.shows("shop")
	_, err := operatorapi.LabelAgent.Do(t.Context(), p.first(), operatorapi.LabelAgentInput{Agent: "shop", Body: operatorapi.LabelAgentBody{Set: map[string]string{"env": "fresh"}}})
	require.NoError(t, err)
	page.shows("env=fresh")
	require.NoError(t, p.admin.Operators.Revoke(t.Context(), "alice"))
	page.ends()
}

// TestConsole_FollowsHosts: the page shows a host as soon as it is served, while one waits.
func TestConsole_FollowsHosts(t *testing.T) {
	p := start(t, func(c *Config) {
		c.Gateway = GatewayConfig{Domain: "apps.example.com", CA: GatewayInternal, HTTPSListen: "127.0.0.1:0"}
	})
	tell(p.registered("shop"), routeTo("www.example.com", "/", "web"))
	b := p.signedIn(p.operator("alice", administration.RoleOperator))
	page := b.stream("/console/live/hosts?")
	page.shows("suspended")
	_, err := operatorapi.CreateHostGrant.Do(t.Context(), p.first(), operatorapi.CreateHostGrantInput{Host: "www.example.com", Body: operatorapi.CreateHostGrantBody{Agent: "shop"}})
	require.NoError(t, err)
	page.shows("serving")
}

// TestConsole_EmptyPages: a control plane without a broker has no announcements. However often the
// page is loaded, the operators' audit log gets no refusal.
func TestConsole_EmptyPages(t *testing.T) {
	p := start(t)
	b := p.signedIn(p.operator("alice", administration.RoleOperator))
	for range 70 { // more than the refusals that an operator may have at once
		status, body := b.get("/console/announcements")
		require.Equal(t, http.StatusOK, status)
		require.Contains(t, body, "No broker is set")
		require.Contains(t, body, "--broker-url-file")
	}
	status, _ := b.get("/console/agents/nowhere")
	assert.Equal(t, http.StatusNotFound, status)
	status, _ = b.get("/console/operators")
	assert.Equal(t, http.StatusForbidden, status)
	refused := 0
	for _, r := range p.records(3) {
		if r.Outcome == runnerapi.AuditRefused {
			refused++
			assert.Equal(t, operatorapi.ListOperators.ID, r.Command)
		}
	}
	assert.Equal(t, 1, refused)
}

// The key on the page is the registration's, whatever a link says.
func TestConsole_ShowsKeyOfRegistration(t *testing.T) {
	p := start(t)
	p.waiting("shop", p.token(approve, func(o *administration.TokenOptions) { o.Uses = 1 }))
	e := p.pending()[0]
	_, body := p.signedIn(p.operator("ops", administration.RoleOperator)).get("/console/agents/" + e.ID + "/approve?key=forged")
	assert.Contains(t, body, "log: "+controlapi.ShortPrint(e.Key))
}
