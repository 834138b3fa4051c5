package browser_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/browser"
	"github.com/pipeops/pipeops-vm-agent/test/planetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// office is a control plane with a fleet, in which operators sign in.
type office struct {
	*planetest.Plane
	t    *testing.T
	site string
}

func newOffice(t *testing.T, change ...func(*controlplane.Config)) *office {
	t.Helper()
	p := planetest.Start(t, change...)
	return &office{p, t, p.URL() + "/console"}
}

// as returns the client of an operator with a role.
func (o *office) as(name, role string) *operatorapi.Client {
	o.t.Helper()
	c, err := o.Operators.Create(o.t.Context(), administration.OperatorOptions{Name: name, Role: role, TTL: time.Hour})
	require.NoError(o.t, err)
	client, err := operatorapi.NewClient(c, "test")
	require.NoError(o.t, err)
	o.t.Cleanup(func() { assert.NoError(o.t, client.Close()) })
	return client
}

// signIn opens the link that the command prints, presses the button, and arrives at a page.
func (o *office) signIn(b *browser.Browser, operator *operatorapi.Client, at string) {
	o.t.Helper()
	code, err := operatorapi.CreateConsoleCode.Do(o.t.Context(), operator, operatorapi.ConsoleCodeInput{})
	require.NoError(o.t, err)
	b.Visit(code.Address+"#"+code.Code, "#code")
	await.Until(o.t, "the script fills the code in", func() bool {
		return browser.Get(b, chromedp.Evaluate[string](`document.getElementById("code").value`)) == code.Code
	})
	assert.Equal(o.t, o.site+"/enter", browser.Get(b, chromedp.Location()), "the address no longer has the code")
	b.Follow(`//button[text()="Sign in"]`)
	assert.Equal(o.t, o.site+at, browser.Get(b, chromedp.Location()))
}

// agent puts an agent into the registry, as if it had registered.
func (o *office) agent(n int, change func(*store.Agent)) store.Agent {
	o.t.Helper()
	now := time.Now().Add(-time.Duration(n) * time.Second)
	a := store.Agent{
		ID: fmt.Sprintf("agent%05d", n), Name: fmt.Sprintf("shop-%05d", n), ClusterUID: fmt.Sprintf("uid-%05d", n), State: announce.StateOnline,
		Labels: map[string]string{"env": "prod", "region": []string{"eu", "us", "ap"}[n%3]}, AgentVersion: "v1.4.2", KubernetesVersion: "v1.34.1+k3s1", Distribution: "k3s", Provider: "hetzner",
		Capacity: announce.Capacity{
			Nodes: 1 + n%5, Pods: 110, RunningPods: 37, CPUMillis: 8000, MemoryBytes: 16 << 30, UsedCPUMillis: new(int64(2600)), UsedMemoryBytes: new(int64(9 << 30)),
		},
		EdgeAddress: "cp.example.com:8444", RegisteredAt: now.Add(-time.Hour), LastSeen: now,
	}
	if change != nil {
		change(&a)
	}
	require.NoError(o.t, o.Database().Update(o.t.Context(), func(tx *store.Tx) error { return tx.InsertAgent(o.t.Context(), a) }))
	return a
}

// fill makes a fleet in which something is wrong, and something of everything else.
func (o *office) fill(admin *operatorapi.Client) {
	ctx := o.t.Context()
	for n := range 60 {
		o.agent(n, nil)
	}
	o.agent(100, func(a *store.Agent) {
		a.Name, a.State, a.LastSeen = "a-customer-with-a-very-long-cluster-name-in-frankfurt-number-42", announce.StateOffline, time.Now().Add(-3*time.Hour)
		a.Labels["customer"] = "some-very-long-name-of-a-customer-with-limited-liability"
	})
	troubled := o.agent(101, func(a *store.Agent) {
		a.Name, a.Capacity.UsedCPUMillis, a.Capacity.UsedMemoryBytes = "bakery", nil, nil
		a.Update = &announce.AgentUpdate{State: "failed", From: "v1.4.1", To: "v1.4.2", Reason: "the new pods did not become ready within 5 minutes"}
		a.Components = []announce.Component{{Name: "ingress", Version: "2.3.1", Ready: true}, {Name: "prometheus", Version: "27.1.0", Cause: "PodPending", Message: "no node has 2 GiB of memory left"}}
	})
	o.agent(102, func(a *store.Agent) { a.Name, a.State = "brand-new", announce.StatePending })
	o.agent(103, func(a *store.Agent) { a.Name, a.State, a.RevokedAt = "gone", announce.StateRevoked, time.Now() })
	o.happened(troubled.ID)
	require.NoError(o.t, o.Database().Update(ctx, func(tx *store.Tx) error {
		return tx.SetChecks(ctx, troubled.ID, &store.Checks{Findings: []store.Finding{
			{Check: "permissions", Status: "failed", Detail: "may not list pods in the managed namespace production", Since: time.Now().Add(-2 * time.Hour),
				Fix: "kubectl -n production create rolebinding pipeops-agent --clusterrole=pipeops-agent-namespace --serviceaccount=pipeops:pipeops-agent"},
			{Check: "memory", Status: "warning", Detail: "150 MiB are available", Fix: "stop something else, add memory, or raise the limit", Since: time.Now().Add(-time.Minute)},
		}})
	}))
	tokenID := ""
	for i := range 3 {
		token, err := operatorapi.CreateToken.Do(ctx, admin, operatorapi.CreateTokenInput{Body: operatorapi.CreateTokenBody{
			Name: fmt.Sprintf("batch %d", i), Uses: 10 * i, TTL: operatorapi.Duration(time.Duration(i) * 24 * time.Hour), Approve: i == 1, Labels: map[string]string{"batch": fmt.Sprint(i)},
		}})
		require.NoError(o.t, err)
		tokenID = token.ID
	}
	require.NoError(o.t, o.Database().Update(ctx, func(tx *store.Tx) error {
		return tx.InsertEnrolment(ctx, store.Enrolment{
			ID: "agent00200", TokenID: tokenID, Key: strings.Repeat("a1b2c3d4", 8), Name: "newcomer", ClusterUID: "9d1f0c7e-1111", Address: "203.0.113.7", State: store.EnrolmentPending,
			AskedAt: time.Now().Add(-2 * time.Minute), LastAsked: time.Now(),
			Request: controlapi.RegisterRequest{Name: "newcomer", AgentVersion: "v1.4.2", KubernetesVersion: "v1.34.1", Distribution: "k3s", Labels: map[string]string{"env": "test"}},
		})
	}))
	for name, grant := range map[string]string{"ci": "", "support-team-with-a-long-name": "env in (prod,staging),region!=us"} {
		selector, err := credentials.ParseGrant(grant)
		require.NoError(o.t, err)
		_, err = o.Runners.Issue(ctx, administration.RunnerOptions{Name: name, TTL: 24 * time.Hour, Agents: selector})
		require.NoError(o.t, err)
	}
	_, err := o.Runners.Issue(ctx, administration.RunnerOptions{Name: "deploy", OpenID: &store.Binding{
		Issuer: "https://token.actions.githubusercontent.com", Claims: map[string]string{"repository": "shop/web", "environment": "prod"},
	}})
	require.NoError(o.t, err)
	_, err = operatorapi.CreateHostGrant.Do(ctx, admin, operatorapi.CreateHostGrantInput{Host: "www.bakery.example.com", Body: operatorapi.CreateHostGrantBody{Agent: troubled.ID}})
	require.NoError(o.t, err)
	require.NoError(o.t, o.Database().Update(ctx, func(tx *store.Tx) error {
		return tx.InsertRelease(ctx, store.Release{
			ID: "r1", Version: "v1.4.3", URL: "https://downloads.example.com/v1.4.3", Labels: map[string]string{"ring": "early"}, OfferedAt: time.Now().Add(-time.Hour), ExpiresAt: time.Now().Add(90 * 24 * time.Hour),
		})
	}))
	o.webhook(admin)
}

// webhook makes one whose receiver fails.
func (o *office) webhook(admin *operatorapi.Client) {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusBadGateway) }))
	o.t.Cleanup(receiver.Close)
	_, err := operatorapi.CreateWebhook.Do(o.t.Context(), admin, operatorapi.CreateWebhookInput{Body: operatorapi.CreateWebhookBody{
		Name: "pager", WebhookSettings: operatorapi.WebhookSettings{URL: receiver.URL + "/hooks/7f3a", Types: []string{"app.failed", "agent.*"}, AllowHTTP: true, AllowPrivate: true},
	}})
	require.NoError(o.t, err)
	for i, kind := range []string{"app.failed", "agent.offline", "app.failed"} {
		d := store.Delivery{Webhook: "pager", EventID: fmt.Sprint("e", i), AgentID: "agent00101", Sequence: uint64(i + 1), Type: kind, Body: "{}", CreatedAt: time.Now().Add(-time.Hour)}
		require.NoError(o.t, o.Database().Update(o.t.Context(), func(tx *store.Tx) error { return tx.QueueDelivery(o.t.Context(), d, 100) }))
	}
}

// happened puts events of Apps into an agent's timeline.
func (o *office) happened(agentID string) {
	ctx := o.t.Context()
	for i, app := range []announce.AppEvent{
		{Namespace: "production", Name: "web", Replicas: 3, Ready: 3}, {Namespace: "production", Name: "worker", Replicas: 1, Ready: 0},
		{Namespace: "production", Name: "web", Replicas: 3, Cause: "CrashLoop", Message: "container web ends with exit code 1 soon after its start", Fix: "correct what its last lines complain about, then deploy again"},
	} {
		kind := []announce.Type{announce.AppHealthy, announce.AppProgressing, announce.AppFailed}[i]
		at := time.Now().Add(time.Duration(i-10) * time.Minute)
		require.NoError(o.t, o.Database().Update(ctx, func(tx *store.Tx) error {
			return discovery.Announce(ctx, tx, agentID, at, func(source string, n uint64) (announce.Event, error) {
				return announce.NewAppEvent(kind, source, agentID, app, n, at)
			})
		}))
	}
}

// TestConsole_InBrowser looks at each page, wide and on a phone, light and dark, and does what
// an operator does.
func TestConsole_InBrowser(t *testing.T) {
	suite.Release(t, "the console in a real Chromium")
	o := newOffice(t)
	b := browser.Open(t, chromedp.Flag("ignore-certificate-errors", true)) // the CA is the control plane's own
	admin := o.as("alice", administration.RoleAdmin)

	b.Visit(o.site+"/", "#code")
	b.Accessible("sign-in")
	b.Picture("console-sign-in")
	o.signIn(b, admin, "/")
	s := &scene{site: o.site}
	s.look(t, b, "console-empty-", map[string]string{
		"fleet": "/", "enrolment": "/enrolment", "runners": "/runners", "hosts": "/hosts", "webhooks": "/webhooks", "announcements": "/announcements", "releases": "/releases",
	}, "wide")
	o.fill(admin)
	s.look(t, b, "console-", map[string]string{
		"fleet": "/", "fleet-grid": "/?view=grid&by=region", "fleet-wrong": "/?show=wrong", "fleet-nothing": "/?find=nowhere", "agent": "/agents/bakery", "agent-offline": "/agents/agent00100", "agent-audit": "/agents/bakery/audit", "agent-nodes": "/agents/bakery/nodes",
		"enrolment": "/enrolment", "token-new": "/enrolment/new", "approve": "/agents/agent00200/approve", "deny": "/agents/agent00200/deny",
		"runners": "/runners", "runner-new": "/runners/new", "hosts": "/hosts", "webhooks": "/webhooks", "webhook": "/webhooks/pager", "webhook-new": "/webhooks/new", "webhook-edit": "/webhooks/pager/edit",
		"announcements": "/announcements", "releases": "/releases", "ca": "/ca", "replicas": "/replicas", "operators": "/operators", "operator-new": "/operators/new", "audit": "/audit?verify=1",
		"deploy": "/agents/bakery/deploy", "set-runner": "/operators/set-runner",
		"label": "/agents/bakery/label?labels=env%3Dprod", "revoke": "/agents/bakery/revoke", "missing": "/agents/nowhere",
	}, "wide", "phone")
	o.operate(b)
	o.follow(b)
	o.signedOut(b, admin)
	o.views(t, b)
}

// signedOut ends the session of an open page, and of a form that is filled in.
func (o *office) signedOut(b *browser.Browser, operator *operatorapi.Client) {
	o.t.Helper()
	end := func() {
		_, err := operatorapi.DeleteConsoleSessions.Do(o.t.Context(), operator, operatorapi.DeleteConsoleSessionsInput{Body: operatorapi.DeleteConsoleSessionsBody{Operator: "alice"}})
		require.NoError(o.t, err)
	}
	const open = "/?show=offline"
	b.Visit(o.site+open, "h1")
	b.Lose(func() {
		end()
		b.Await("#signed-out")
		assert.NotContains(o.t, b.Text(), "has not responded")
		b.Accessible("signed-out")
		b.Picture("console-signed-out")
		b.Follow("#signed-out a")
	})
	o.signIn(b, operator, open)

	const form = "/enrolment/new"
	b.Visit(o.site+form, "h1")
	b.Fill("#name", "typed before")
	b.Fill("#labels", "env=prod")
	end()
	b.Follow(`//button[text()="Make the token"]`)
	assert.Contains(o.t, b.Text(), "You are signed out.")
	b.Accessible("form-signed-out")
	b.Picture("console-form-signed-out")
	o.signIn(b, operator, form)
	b.Await("#restored")
	assert.Equal(o.t, "typed before", b.Value("#name"))
	end()
	b.Follow(`//button[text()="Make the token"]`)
	o.elsewhere(b, operator)
	b.Follow(`//a[text()="open the form again"]`)
	b.Await("#restored")
	assert.Equal(o.t, "typed before", b.Value("#name"))
	assert.Equal(o.t, "env=prod", b.Value("#labels"))
	b.Accessible("form-restored")
	b.Picture("console-form-restored")
	b.Follow(`//button[text()="Make the token"]`)
	assert.Contains(o.t, b.Text(), "CLUSTER_NAME=NAME bash", "the form is of the new session")
	b.Visit(o.site+form, "h1")
	assert.Empty(o.t, b.Value("#name"), "what was sent does not come back")
}

// operate enrols machines, by the keyboard and the mouse.
func (o *office) operate(b *browser.Browser) {
	o.t.Helper()
	b.Resize(browser.Screens["wide"][0], browser.Screens["wide"][1])
	b.Visit(o.site+"/", "h1")
	b.Follow(`//a[text()="Enrol machines"]`)
	b.Fill("#name", "in the browser")
	b.Follow(`//button[text()="Make the token"]`)
	assert.Contains(o.t, b.Text(), "CLUSTER_NAME=NAME bash")
	assert.Contains(o.t, b.Text(), "Waiting for your machine…")
	// A browser without a window may refuse its clipboard.
	browser.Get(b, chromedp.Evaluate[bool](`navigator.clipboard.writeText = async (text) => { window.copied = text; }, document.querySelector(".ways [data-copy]").click(), true`))
	await.Until(o.t, "the line is copied", func() bool { return strings.Contains(b.Text(), "Copied") })
	assert.Contains(o.t, browser.Get(b, chromedp.Evaluate[string](`window.copied`)), "CLUSTER_NAME=NAME bash")
	b.Accessible("made")
	b.Picture("console-made")
	b.Visit(o.site+"/?find=bakery", "h1")
	b.Follow(`//a[text()="bakery"]`)
	b.Follow(`//a[text()="Label"]`)
	b.Fill("#labels", "tier=gold env-")
	b.Follow(`//button[text()="Set the labels"]`)
	assert.Contains(o.t, b.Text(), "The labels are set.")
	found, err := o.Agents.List(o.t.Context())
	require.NoError(o.t, err)
	for _, a := range found {
		if a.Name == "bakery" {
			assert.Equal(o.t, map[string]string{"tier": "gold", "region": "ap"}, a.Labels)
		}
	}
}

// follow has open pages show what happens, without being loaded again.
func (o *office) follow(b *browser.Browser) {
	o.t.Helper()
	b.Visit(o.site+"/?show=offline", "h1")
	browser.Get(b, chromedp.Evaluate[bool](`window.stays = true`))
	o.agent(300, func(a *store.Agent) { a.Name, a.State = "fresh", announce.StateOffline })
	await.Until(o.t, "the fleet shows the agent", func() bool { return strings.Contains(b.Text(), "fresh") })
	assert.True(o.t, browser.Get(b, chromedp.Evaluate[bool](`window.stays === true`)), "the page was not loaded again")
}

// views signs in as a viewer, who sees no buttons, and signs out.
func (o *office) views(t *testing.T, b *browser.Browser) {
	b.Follow(`//button[text()="Sign out"]`)
	b.Visit(o.site+"/runners", "#code")
	assert.NotContains(t, b.Text(), "support-team", "a tab that has signed out shows nothing")
	o.signIn(b, o.as("victor", administration.RoleViewer), "/runners") // which was opened before
	for _, path := range []string{"/", "/agents/bakery", "/enrolment", "/runners", "/webhooks/pager"} {
		b.Visit(o.site+path, "h1")
		for _, button := range []string{"Revoke", "Label", "Enrol machines", "Create", "Delete", "Approve"} {
			assert.Empty(t, browser.Get(b, chromedp.Evaluate[string](`[...document.querySelectorAll("main a.button")].map(a => a.textContent).filter(t => t.includes("`+button+`")).join()`)), path)
		}
	}
	b.Picture("console-viewer")
	b.Visit(o.site+"/operators", "h1")
	assert.Contains(t, b.Text(), "has the role viewer")
	b.Accessible("forbidden")
	b.Picture("console-forbidden")
}

// elsewhere signs the browser in without the open page, as another tab does.
func (o *office) elsewhere(b *browser.Browser, operator *operatorapi.Client) {
	o.t.Helper()
	code, err := operatorapi.CreateConsoleCode.Do(o.t.Context(), operator, operatorapi.ConsoleCodeInput{})
	require.NoError(o.t, err)
	status := browser.Get(b, chromedp.Evaluate[int](fmt.Sprintf(
		`fetch("/console/enter", {method: "POST", body: new URLSearchParams({code: %q})}).then(r => r.status)`, code.Code), chromedp.EvalAwaitPromise))
	require.Equal(o.t, http.StatusOK, status)
}
