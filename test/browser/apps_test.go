package browser_test

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/agent"
	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/browser"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// shop is the name of the agent whose Apps an operator works on.
const shop = "shop"

// branch is an office with an agent behind a real tunnel, on a cluster that runs pods.
type branch struct {
	*office
	env     *kubetest.Env
	image   string
	browser *browser.Browser
	stop    func() // ends the agent
}

func newBranch(t *testing.T) *branch {
	t.Helper()
	br := &branch{env: kubetest.Full(t), office: newOffice(t)}
	var err error
	br.image, err = br.env.Cluster.LoadApp(t.Context(), "hello")
	require.NoError(t, err)
	a, err := agent.New(agent.Options{
		Config: config.Config{
			ControlPlaneURL: br.URL(), Token: br.Token(t, administration.TokenOptions{TTL: time.Hour}), ClusterName: shop,
			StateDir: t.TempDir(), Namespace: kubetest.AgentNamespace, HealthAddress: "127.0.0.1:0",
		},
		Version: "test", Log: zerolog.Nop(), Kubernetes: br.env.Agent, Now: br.Clock.Now,
	})
	require.NoError(t, err)
	br.stop = await.Background(t, "the agent", a.Run)
	t.Cleanup(br.removeApps)
	br.AwaitOnline(t, time.Time{})
	br.browser = browser.Open(t, chromedp.Flag("ignore-certificate-errors", true))
	return br
}

// removeApps leaves a cluster that others use as it was.
func (br *branch) removeApps() {
	for _, name := range []string{"web", long} {
		app := &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: "production", Name: name}}
		assert.NoError(br.t, client.IgnoreNotFound(br.env.Client.Delete(context.Background(), app)))
	}
}

// app returns the path of an App's page, or of a page below it.
func (br *branch) app(name, below string) string {
	return "/agents/" + shop + "/app" + below + "?" + url.Values{"namespace": {"production"}, "app": {name}}.Encode()
}

// shows waits until the open page shows a text, without being loaded again.
func (br *branch) shows(what string) {
	br.t.Helper()
	browser.Get(br.browser, chromedp.Evaluate[bool](`window.stays = true`))
	await.Until(br.t, "the page shows "+what, func() bool { return strings.Contains(br.browser.Text(), what) })
	assert.True(br.t, browser.Get(br.browser, chromedp.Evaluate[bool](`window.stays === true`)), "the page was not loaded again")
}

// examine looks at the open page as axe-core does.
func (br *branch) examine(name string) {
	br.t.Helper()
	br.browser.Accessible(name)
	br.browser.Fits(name)
	br.browser.Picture("console-" + name)
}

// fill sets a field of a form.
func (br *branch) fill(field, value string) {
	br.t.Helper()
	br.browser.Fill(`main [name="`+field+`"]`, value)
}

// send presses the form's button.
func (br *branch) send(button string) {
	br.t.Helper()
	br.browser.Follow(`//main//button[text()="` + button + `"]`)
}

// TestConsole_Apps deploys an App, and does all else with it that an operator can,
// through a real tunnel. An agent then carries it out in a cluster that runs pods.
func TestConsole_Apps(t *testing.T) {
	suite.Release(t, "an App's pages of the console in a real Chromium, with a real agent")
	br := newBranch(t)
	b := br.browser
	b.Resize(browser.Screens["wide"][0], browser.Screens["wide"][1])
	br.signIn(b, br.as("alice", administration.RoleOperator), "/")
	for _, path := range []string{br.app("web", ""), "/agents/" + shop + "/deploy"} {
		b.Visit(br.site+path, "h1")
		assert.Contains(t, b.Text(), "operator runner set alice RUNNER")
	}
	br.examine("app-no-runner")
	_, err := br.Runners.Issue(t.Context(), administration.RunnerOptions{Name: "ops", TTL: 24 * time.Hour, Agents: credentials.Grant{}})
	require.NoError(t, err)
	admin := br.as("boss", administration.RoleAdmin)
	_, err = operatorapi.SetOperatorRunner.Do(t.Context(), admin, operatorapi.SetOperatorRunnerInput{
		Body: operatorapi.SetOperatorRunnerBody{Operator: "alice", Runner: "ops"},
	})
	require.NoError(t, err)

	br.deploy()
	br.objects()
	br.logs()
	br.scale()
	br.fail()
	br.look()
	br.refused()
	br.end()
	br.away()
}

// deploy fills the form in.
func (br *branch) deploy() {
	b := br.browser
	b.Visit(br.site+"/agents/"+shop, "h1")
	assert.Contains(br.t, b.Text(), "No App is known", "none was deployed yet")
	br.examine("agent-no-apps")
	b.Follow(`//a[text()="Deploy an App"]`)
	assert.Contains(br.t, b.Text(), "Deploy an App to "+shop, "the link has the agent's ID")
	br.fill("namespace", "production")
	br.fill("app", "web")
	br.fill("image", br.image)
	br.fill("ports", "8080")
	b.Click("details summary")
	br.fill("args", "--lines\n3")
	br.examine("deploy-filled-in")
	br.send("YAML")
	assert.Contains(br.t, b.Value(`[name="yaml"]`), "ports:\n- port: 8080")
	br.examine("deploy-yaml")
	br.send("Form")
	assert.Equal(br.t, "8080", b.Value(`[name="ports"]`))
	br.send("Preview")
	assert.Contains(br.t, b.Text(), "The App is new.")
	assert.Contains(br.t, b.Text(), "pipeops-runner deploy "+shop+" -f web.yaml")
	br.examine("deploy-preview")
	br.send("Deploy")
	assert.Contains(br.t, b.Text(), "The agent deploys the App.")
	br.examine("app-deploying")
	br.shows("1/1 ready")
	br.shows("Healthy")
}

// objects lists what the cluster has beside Apps.
func (br *branch) objects() {
	b := br.browser
	b.Visit(br.site+"/agents/"+shop, "h1")
	b.Follow(`//a[text()="All objects"]`)
	assert.Contains(br.t, b.Text(), "There is none", "no chart was installed")
	b.Follow(`//a[text()="Namespaces"]`)
	assert.Contains(br.t, b.Text(), "production")
	assert.Contains(br.t, b.Text(), "pipeops-runner namespace list "+shop)
	br.fill("find", "nowhere")
	br.send("Search")
	assert.Contains(br.t, b.Text(), "There is none")
	for _, kind := range []string{"Secrets", "ConfigMaps", "Manifests", "Jobs", "Pipelines"} {
		b.Follow(`//a[text()="` + kind + `"]`)
		assert.NotContains(br.t, b.Text(), "Fix:", kind)
	}
}

// logs opens the log, which continues.
func (br *branch) logs() {
	b := br.browser
	b.Visit(br.site+br.app("web", ""), "h1")
	b.Follow(`//a[text()="Follow the log"]`)
	count := func() int {
		return browser.Get(b, chromedp.Evaluate[int](`document.querySelectorAll("#lines li").length`))
	}
	before := count()
	await.Until(br.t, "the log continues", func() bool { return count() > before+5 })
	assert.Contains(br.t, b.Text(), "listening on")
	lines := browser.Get(b, chromedp.Evaluate[[]string](`[...document.querySelectorAll("#lines li")].map(l => l.textContent)`))
	seen := map[string]bool{}
	for _, line := range lines {
		assert.False(br.t, seen[line], "twice: %s", line)
		seen[line] = true
	}
	br.fill("find", "listening on")
	await.Until(br.t, "the script has hidden the other lines", func() bool { return strings.Contains(b.Text(), "1 of ") })
	b.Follow(`//button[text()="Search"]`)
	assert.Contains(br.t, b.Text(), "listening on")
	assert.Equal(br.t, 1, count(), "the server has searched")
}

// scale sets the number of pods by the keyboard.
func (br *branch) scale() {
	b := br.browser
	b.Visit(br.site+br.app("web", ""), "h1")
	b.Follow(`//a[text()="Scale"]`)
	assert.Equal(br.t, "1", b.Value("#replicas"))
	b.Fill("#replicas", "2")
	b.Enter("#replicas")
	b.Await(".notice")
	br.shows("2/2 ready")
}

// fail deploys an image that does not exist, by the form that begins with what the App has.
func (br *branch) fail() {
	b := br.browser
	b.Visit(br.site+br.app("web", ""), "h1")
	b.Follow(`//a[text()="Change"]`)
	assert.Equal(br.t, br.image, b.Value(`[name="image"]`))
	br.fill("image", "registry.example.com/shop/web:2.0.0")
	br.send("Preview")
	assert.Contains(br.t, b.Text(), "+  image: registry.example.com/shop/web:2.0.0")
	br.examine("deploy-diff")
	br.send("Deploy")
	br.shows("Fix:")
	assert.Contains(br.t, b.Text(), string(runnerapi.CauseImageNotFound))
	b.Visit(br.site+"/agents/"+shop, "h1")
	br.shows(string(runnerapi.CauseImageNotFound) + ": ") // the control plane knows it, without a broker
}

// look examines each page, wide and on a phone, with an App that has failed and one that has the
// longest name.
func (br *branch) look() {
	operator := br.as("carol", administration.RoleAdmin)
	_, err := operatorapi.SetOperatorRunner.Do(br.t.Context(), operator, operatorapi.SetOperatorRunnerInput{
		Body: operatorapi.SetOperatorRunnerBody{Operator: "carol", Runner: "ops"},
	})
	require.NoError(br.t, err)
	_, err = operatorapi.DeployApp.Do(br.t.Context(), operator, operatorapi.DeployAppInput{
		AppKey: operatorapi.AppKey{Agent: shop, Namespace: "production", App: long},
		Body: operatorapi.DeployAppBody{Spec: runnerapi.AppSpec{
			Image: br.image, Args: []string{"--crash-after", "1s"}, Env: []runnerapi.EnvVar{{Name: "A_VARIABLE_WITH_A_LONG_NAME", Value: strings.Repeat("and a long value ", 12)}},
		}},
	})
	require.NoError(br.t, err)
	b := br.browser
	b.Visit(br.site+br.app(long, ""), "h1")
	br.shows("Fix:")
	s := &scene{site: br.site}
	s.look(br.t, b, "console-", map[string]string{
		"app": br.app("web", ""), "app-long": br.app(long, ""), "app-missing": br.app("nowhere", ""), "app-logs": br.app("web", "/logs"),
		"app-logs-long": br.app(long, "/logs"), "app-scale": br.app("web", "/scale"), "app-restart": br.app("web", "/restart"),
		"app-rollback": br.app("web", "/rollback") + "&revision=1", "app-deploy": "/agents/" + shop + "/deploy?namespace=production&app=" + long,
		"agent-apps": "/agents/" + shop, "agent-audit-apps": "/agents/" + shop + "/audit",
		"agent-namespaces": "/agents/" + shop + "/objects/namespaces", "agent-cost": "/agents/" + shop + "/objects/cost",
	}, "wide", "phone")
	b.Resize(browser.Screens["wide"][0], browser.Screens["wide"][1])
}

// refused sends what the form, the agent or the cluster owner's policy does not accept.
func (br *branch) refused() {
	b := br.browser
	b.Visit(br.site+br.app("web", ""), "h1")
	b.Follow(`//a[text()="Change"]`)
	br.fill("ports", "http")
	br.fill("replicas", "many")
	br.send("Deploy")
	assert.Contains(br.t, b.Text(), "2 fields need a correction.")
	assert.Contains(br.t, b.Text(), `"http" is not a port`)
	assert.Equal(br.t, "http", b.Value(`[name="ports"]`), "the form has what was sent")
	br.examine("app-refused")
	br.fill("ports", "8080")
	br.fill("replicas", "1")
	br.send("Deploy")
	assert.Contains(br.t, b.Text(), "The agent deploys the App.", "the form is sent again")
}

// end stops an App and deletes it, by its name.
func (br *branch) end() {
	b := br.browser
	b.Visit(br.site+br.app(long, ""), "h1")
	b.Follow(`//a[text()="Stop"]`)
	br.send("Stop")
	assert.Contains(br.t, b.Text(), "The App stops.")
	b.Await(`//a[text()="Start"]`)
	b.Follow(`//a[text()="Delete"]`)
	br.fill("confirm", "another")
	br.send("Delete")
	assert.Contains(br.t, b.Text(), "is not the name of what is deleted")
	br.examine("app-delete")
	br.fill("confirm", long)
	br.send("Delete")
	assert.Contains(br.t, b.Text(), "The App is deleted.")
}

// away has the agent end.
func (br *branch) away() {
	br.stop()
	b := br.browser
	b.Visit(br.site+br.app("web", ""), "h1")
	assert.Contains(br.t, b.Text(), "Fix:")
	br.examine("app-away")
	assert.NotContains(br.t, b.Text(), "Operators", "the navigation of an operator who is not an admin")
	b.Visit(br.site+br.app("web", "/logs"), "h1")
	assert.Contains(br.t, b.Text(), "Fix:")
	br.examine("app-logs-away")
}
