package controlplane

import (
	"context"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
)

func TestConsole_AppsWithoutBroker(t *testing.T) {
	p := start(t)
	shop := p.registered("shop")
	require.NoError(t, shop.client.Events(t.Context(), controlapi.EventsRequest{Events: []controlapi.Event{
		{ID: "1", Type: "app.healthy", Time: p.clock.now(), App: &controlapi.AppEvent{Namespace: "production", Name: "web", Replicas: 2, Ready: 2}},
		{ID: "2", Type: "app.failed", Time: p.clock.now(), App: &controlapi.AppEvent{
			Namespace: "production", Name: "db", Replicas: 1, Cause: "OutOfMemory", Message: "the container needs more memory", Fix: "raise the limit",
		}},
		{ID: "3", Type: "app.healthy", Time: p.clock.now(), App: &controlapi.AppEvent{Namespace: "production", Name: "gone"}},
		{ID: "4", Type: "app.removed", Time: p.clock.now(), App: &controlapi.AppEvent{Namespace: "production", Name: "gone"}},
	}}))
	status, body := p.signedIn(p.operator("vic", administration.RoleViewer)).get("/console/agents/shop")
	require.Equal(t, http.StatusOK, status, body)
	for _, text := range []string{"the container needs more memory", "raise the limit", "OutOfMemory", "2/2", "app.removed"} {
		assert.Contains(t, body, text)
	}
	assert.NotContains(t, body, "app=gone")
	assert.NotContains(t, body, "No App is known")
	assert.Len(t, p.queued(), 5, "all wait for a broker still")

	client, err := operatorapi.NewClient(p.operator("olga", administration.RoleOperator), "test")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	_, err = operatorapi.RevokeAgent.Do(t.Context(), client, operatorapi.AgentInput{Agent: "shop"})
	require.NoError(t, err)
	timeline, err := p.admin.Agents.Timeline(t.Context(), shop.id.AgentID, announce.TimelineQuery{Limit: 1})
	require.NoError(t, err)
	assert.Equal(t, []announce.Type{announce.AgentRemoved}, typesOf(timeline.Events), "operators' changes are in it")
}

// auditLog keeps an agent's records in memory.
type auditLog struct {
	mu      sync.Mutex
	records []runnerapi.AuditRecord
}

// Record implements backend.Auditor.
func (l *auditLog) Record(r runnerapi.AuditRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
}

// Keep implements backend.Auditor.
func (l *auditLog) Keep(_ context.Context, r runnerapi.AuditRecord) error {
	l.Record(r)
	return nil
}

// List implements backend.Auditor.
func (l *auditLog) List(context.Context, int64, int) (runnerapi.AuditList, error) {
	return runnerapi.AuditList{}, nil
}

// Find implements backend.Auditor.
func (l *auditLog) Find(context.Context, runnerapi.AuditFilter, func(runnerapi.AuditRecord) bool) (runnerapi.AuditList, error) {
	return runnerapi.AuditList{}, nil
}

func (l *auditLog) commands() (done []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		done = append(done, r.Command+" "+string(r.Outcome)+" "+r.Runner+" "+r.Actor)
	}
	return done
}

const appOfShop = "namespace=production&app=web"

// withApp makes an agent with an App, and the Runner ops that it is granted to.
func (p *plane) withApp(audit *auditLog) *served {
	p.t.Helper()
	s := p.labelled("shop", map[string]string{"env": "prod"}).serveAudited(audit)
	p.issue("ops", "env=prod")
	deployer := s.visit(p.issue("deployer", ""))
	key := runnerapi.Key{Namespace: "production", Name: "web"}
	for _, image := range []string{"nginx:1", "nginx:2"} {
		_, err := deployer.Apps().Deploy(p.t.Context(), key, runnerapi.AppSpec{Image: image}, runnerapi.WriteOptions{})
		require.NoError(p.t, err)
	}
	_, err := deployer.Sources().Set(p.t.Context(), runnerapi.Key{Namespace: "production", Name: "deploy"}, runnerapi.SourceSpec{
		URL: "https://git.example.com/shop/deploy.git", Type: runnerapi.SourceApp, App: "web", Path: "app.yaml",
	}, runnerapi.WriteOptions{})
	require.NoError(p.t, err)
	return s
}

// actAs has an operator act as a Runner.
func (p *plane) actAs(operator, runner string) {
	p.t.Helper()
	_, err := operatorapi.SetOperatorRunner.Do(p.t.Context(), p.first(), operatorapi.SetOperatorRunnerInput{
		Body: operatorapi.SetOperatorRunnerBody{Operator: operator, Runner: runner},
	})
	require.NoError(p.t, err)
}

// TestOperatorRunner_ChangesApps operates an App on its page, through the tunnel. Both audit logs
// have it.
func TestOperatorRunner_ChangesApps(t *testing.T) {
	t.Parallel()
	p, audit := start(t), &auditLog{}
	s := p.withApp(audit)
	b := p.signedIn(p.operator("alice", administration.RoleOperator))
	status, body := b.get("/console/agents/shop/app?" + appOfShop)
	assert.Equal(t, http.StatusConflict, status)
	assert.Contains(t, body, "operator runner set alice RUNNER")
	p.actAs("alice", "ops")

	status, body = b.get("/console/agents/shop/app?" + appOfShop)
	require.Equal(t, http.StatusOK, status, body)
	for _, text := range []string{"nginx:2", "Runner ops", "https://git.example.com/shop/deploy.git", "/app/restart?app=web&amp;namespace=production", "/app/rollback?app=web&amp;namespace=production&amp;revision="} {
		assert.Contains(t, body, text)
	}
	_, body = b.get("/console/agents/shop/app/scale?" + appOfShop)
	assert.Contains(t, body, "pipeops-runner scale shop web -n production --replicas NUMBER")
	form := func(more ...string) url.Values {
		f := url.Values{"namespace": {"production"}, "app": {"web"}}
		for i := 0; i < len(more); i += 2 {
			f.Set(more[i], more[i+1])
		}
		return f
	}
	for _, change := range []struct {
		path, says string
		form       url.Values
	}{
		{"scale", "The number of pods is set.", form("replicas", "3")},
		{"restart", "The App restarts.", form()},
		{"rollback", "The App goes back to the revision.", form("revision", "1")},
		{"pause", "The App is paused.", form()},
		{"resume", "The App is resumed.", form()},
		{"stop", "The App stops.", form("replicas", "0")},
	} {
		status, body = b.change("/console/agents/shop/app/"+change.path, change.form)
		require.Equal(t, http.StatusOK, status, body)
		assert.Contains(t, body, change.says)
	}
	assert.Contains(t, body, "/app/start?", "the App is stopped")
	assert.NotContains(t, body, "/app/stop?")
	app, err := s.backend.Apps().Get(t.Context(), runnerapi.Key{Namespace: "production", Name: "web"})
	require.NoError(t, err)
	assert.Equal(t, "nginx:1", app.Spec.Image, "it went back")
	status, body = b.change("/console/agents/shop/app/delete?"+appOfShop, form("confirm", "wbe"))
	assert.Equal(t, http.StatusUnprocessableEntity, status)
	assert.Contains(t, body, "is not the name of what is deleted")
	status, body = b.change("/console/agents/shop/app/delete?"+appOfShop, form("confirm", "web"))
	require.Equal(t, http.StatusOK, status, body)
	assert.Contains(t, body, "The App is deleted.")
	_, err = s.backend.Apps().Get(t.Context(), runnerapi.Key{Namespace: "production", Name: "web"})
	assert.True(t, problem.Is(err, problem.NotFound), "%v", err)
	verbs := map[string]bool{}
	for _, call := range s.backend.Calls() {
		verbs[call.Verb] = true
	}
	assert.True(t, verbs["Apps.Scale"] && verbs["Apps.Restart"] && verbs["Apps.Rollback"], "%v", verbs)
	done := strings.Join(audit.commands(), "\n")
	for _, command := range []string{"scale-app", "restart-app", "rollback-app", "pause-app", "resume-app", "delete-app"} {
		assert.Contains(t, done, command+" done ops alice")
	}
	assert.Contains(t, done, "put-app done deployer ", "a Runner itself is not an operator")
	seen := map[string]bool{}
	for _, r := range p.records(19) {
		seen[r.Operator+" "+r.Command+" "+string(r.Outcome)] = true
	}
	for _, want := range []string{"alice scale-agent-app done", "alice restart-agent-app done", "alice rollback-agent-app done", "alice pause-agent-app done", "alice delete-agent-app done", "admin set-operator-runner done"} {
		assert.True(t, seen[want], "%s: %v", want, seen)
	}
}

// TestConsole_DeployForm: the form starts with the App's present spec. The operators' audit log
// does not get the spec.
func TestConsole_DeployForm(t *testing.T) {
	t.Parallel()
	p, audit := start(t), &auditLog{}
	s := p.withApp(audit)
	b := p.signedIn(p.operator("alice", administration.RoleOperator))
	p.actAs("alice", "ops")
	_, body := b.get("/console/agents/shop")
	assert.Contains(t, body, "/deploy\">Deploy an App")
	_, body = b.get("/console/agents/shop/deploy?" + appOfShop)
	for _, text := range []string{`name="image" value="nginx:2"`, `name="ports"`, "More fields", "pipeops-runner deploy shop -f web.yaml"} {
		assert.Contains(t, body, text)
	}
	_, body = b.get("/console/agents/shop/deploy?namespace=production&app=other")
	assert.Contains(t, body, `name="image" value=""`, "an App that is not there yet")
	assert.Contains(t, body, `name="app" value="other"`)
	form := url.Values{
		"view": {"form"}, "namespace": {"production"}, "app": {"other"}, "type": {"Deployment"}, "image": {"nginx:3"}, "replicas": {"2"},
		"env.name": {"KEY", "PASSWORD", ""}, "env.from": {"text", "secret", "text"}, "env.value": {"hunter2", "web/password", ""},
	}
	sends := func(to string) (int, string) {
		form.Set("to", to)
		return b.change("/console/agents/shop/deploy", form)
	}
	status, body := sends("yaml")
	require.Equal(t, http.StatusOK, status, body)
	assert.Contains(t, body, "name: web\n", "of the Secret")
	status, body = sends("preview")
	require.Equal(t, http.StatusOK, status, body)
	assert.Contains(t, body, "The App is new.")
	_, err := s.backend.Apps().Get(t.Context(), runnerapi.Key{Namespace: "production", Name: "other"})
	require.Error(t, err, "a preview deploys nothing")
	status, body = sends("deploy")
	require.Equal(t, http.StatusOK, status, body)
	assert.Contains(t, body, "The agent deploys the App.")
	app, err := s.backend.Apps().Get(t.Context(), runnerapi.Key{Namespace: "production", Name: "other"})
	require.NoError(t, err)
	assert.Equal(t, "nginx:3", app.Spec.Image)
	assert.EqualValues(t, 2, *app.Spec.Replicas)
	assert.Equal(t, []runnerapi.EnvVar{{Name: "KEY", Value: "hunter2"}, {Name: "PASSWORD", Secret: &runnerapi.KeyRef{Name: "web", Key: "password"}}}, app.Spec.Env)
	assert.Contains(t, audit.commands(), "put-app done ops alice")
	form.Set("image", "nginx:4")
	status, body = sends("deploy")
	assert.Equal(t, http.StatusConflict, status, "of the form for a new App")
	assert.Contains(t, body, "An App of this name exists")
	form.Set("generation", strconv.FormatInt(app.Generation, 10))
	_, body = sends("preview")
	assert.Contains(t, body, "<del>-  image: nginx:3</del>")
	assert.Contains(t, body, "<ins>&#43;  image: nginx:4</ins>")
	form.Set("image", "")
	form.Set("ports", "http")
	status, body = sends("deploy")
	assert.Equal(t, http.StatusUnprocessableEntity, status)
	assert.Contains(t, body, `role="alert"`)
	assert.Contains(t, body, "2 fields need a correction.")
	assert.Contains(t, body, "hunter2", "the form has what was sent")
	assert.Contains(t, body, `name="image" value=""`)
	for _, r := range p.records(6) {
		assert.NotContains(t, string(r.Arguments), "hunter2")
	}
}

// TestConsole_DeepLink: who opens a page without a session arrives there after signing in.
func TestConsole_DeepLink(t *testing.T) {
	t.Parallel()
	p := start(t)
	b := p.browser()
	const page = "/console/runners?find=build&after="
	_, body := b.get(page)
	require.Contains(t, body, "Sign in")
	b.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	enter := func() string {
		r := b.request(http.MethodPost, "/console/enter", url.Values{"code": {p.code(p.operator("vic", administration.RoleViewer))}}.Encode())
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		resp, err := b.http.Do(r)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		return resp.Header.Get("Location")
	}
	assert.Equal(t, page, enter())
	b.http.Jar, _ = cookiejar.New(nil) // New never fails
	b.get("/console/hosts")
	b.get("/console/")
	assert.Equal(t, "/console/", enter(), "the last page counts")
}

// TestConsole_ExpiredRunner: a certificate that ended is no valid one.
func TestConsole_ExpiredRunner(t *testing.T) {
	t.Parallel()
	p := start(t)
	_, err := p.admin.Runners.Create(t.Context(), "builder", time.Hour, false)
	require.NoError(t, err)
	p.clock.forward(2 * time.Hour)
	_, body := p.signedIn(p.operator("vic", administration.RoleViewer)).get("/console/runners")
	assert.Contains(t, body, `<span class="state warn">expired</span>`)
	assert.NotContains(t, body, ">valid<")
}

// TestConsole_TwoTabs: the second of two forms that were opened together is refused. The refused
// form stays refused, so that one who sends it again does not undo the other change.
func TestConsole_TwoTabs(t *testing.T) {
	t.Parallel()
	p := start(t)
	s := p.withApp(&auditLog{})
	b := p.signedIn(p.operator("alice", administration.RoleOperator))
	p.actAs("alice", "ops")
	_, body := b.get("/console/agents/shop/deploy?" + appOfShop)
	hidden := regexp.MustCompile(`name="generation" value="([0-9]+)"`)
	require.Regexp(t, hidden, body)
	generation := hidden.FindStringSubmatch(body)[1]
	send := func(image string) (int, string) {
		return b.change("/console/agents/shop/deploy?"+appOfShop, url.Values{
			"namespace": {"production"}, "app": {"web"}, "generation": {generation}, "view": {"form"}, "image": {image},
		})
	}
	status, body := send("nginx:5")
	require.Equal(t, http.StatusOK, status, body)
	for range 2 {
		status, body = send("nginx:6")
		assert.Equal(t, http.StatusPreconditionFailed, status)
		assert.Contains(t, body, "the change was made from generation "+generation)
		assert.Equal(t, generation, hidden.FindStringSubmatch(body)[1])
		assert.Contains(t, body, "nginx:6", "the form has what was sent")
	}
	app, err := s.backend.Apps().Get(t.Context(), runnerapi.Key{Namespace: "production", Name: "web"})
	require.NoError(t, err)
	assert.Equal(t, "nginx:5", app.Spec.Image)
}

// TestConsole_GrantChangedMeanwhile sends a grant from a page that shows an earlier one.
func TestConsole_GrantChangedMeanwhile(t *testing.T) {
	t.Parallel()
	p := start(t)
	_, err := operatorapi.CreateRunner.Do(t.Context(), p.first(), operatorapi.CreateRunnerInput{Body: operatorapi.CreateRunnerBody{Name: "ci", Agents: "env=test"}})
	require.NoError(t, err)
	b := p.signedIn(p.operator("alice", administration.RoleOperator))
	const page = "/console/runners/ci/grant?agents=env%3Dtest"
	_, body := b.get(page)
	require.Contains(t, body, `name="from" value="env=test"`)
	send := func(agents string) (int, string) {
		return b.change(page, url.Values{"agents": {agents}, "from": {"env=test"}})
	}
	status, body := send("env=prod")
	require.Equal(t, http.StatusOK, status, body)
	status, body = send("env=lost")
	assert.Equal(t, http.StatusPreconditionFailed, status)
	assert.Contains(t, body, "Runner ci has grant")
	assert.Contains(t, body, `name="from" value="env=test"`)
	runners, err := operatorapi.ListRunners.Do(t.Context(), p.first(), struct{}{})
	require.NoError(t, err)
	agents := map[string]string{}
	for _, r := range runners.Items {
		agents[r.Name] = r.Agents
	}
	assert.Equal(t, "env=prod", agents["ci"])
}

// TestConsole_FollowsLogs follows a log until the operator no longer acts as the Runner.
func TestConsole_FollowsLogs(t *testing.T) {
	t.Parallel()
	p, audit := start(t), &auditLog{}
	s := p.withApp(audit)
	b := p.signedIn(p.operator("alice", administration.RoleViewer))
	p.actAs("alice", "ops")
	s.backend.Log(runnerapi.LogLine{Time: p.clock.now(), Pod: "web-1", Line: "the first <b>line</b>"})
	log := b.stream("/console/live/agents/shop/app/logs?" + appOfShop + "&after=" + url.QueryEscape(p.clock.now().Add(-time.Hour).Format(time.RFC3339Nano)))
	log.shows("the first &lt;b&gt;line")
	_, err := operatorapi.DeleteOperatorRunner.Do(t.Context(), p.first(), operatorapi.DeleteOperatorRunnerInput{Body: operatorapi.DeleteOperatorRunnerBody{Operator: "alice"}})
	require.NoError(t, err)
	log.ends()
}

// TestConsole_ShowsNodes: an operator who acts as a Runner sees the nodes. Others read why they do
// not.
func TestConsole_ShowsNodes(t *testing.T) {
	t.Parallel()
	p := start(t)
	s := p.withApp(&auditLog{})
	p.registered("quiet")
	p.issue("lab", "env=test")
	b := p.signedIn(p.operator("vic", administration.RoleViewer))
	page := func(agent string) string {
		t.Helper()
		status, body := b.get("/console/agents/" + agent + "/nodes")
		assert.Equal(t, http.StatusOK, status, body)
		return body
	}
	_, body := b.get("/console/agents/shop")
	assert.Contains(t, body, "/nodes\">Show the nodes</a>")
	body = page("shop")
	assert.Contains(t, body, "operator runner set vic RUNNER")
	assert.NotContains(t, body, "/live/", "nothing follows an agent that may not be asked")
	for _, r := range p.records(1) {
		assert.NotEqual(t, runnerapi.AuditRefused, r.Outcome, "the page must not make a call that the agent refuses")
	}

	p.actAs("vic", "ops")
	body = page("shop")
	for _, text := range []string{runnertest.NodeName, "worker", "0.40 of 1.90 cores", "3 of 110", "v1.36.3", "pipeops-runner node list shop", "/live/agents/"} {
		assert.Contains(t, body, text)
	}
	called := false
	for _, call := range s.backend.Calls() {
		called = called || call.Verb == "Nodes.List"
	}
	assert.True(t, called)

	body = page("quiet")
	assert.Contains(t, body, "only an agent that is online answers")
	p.actAs("vic", "lab")
	assert.Contains(t, page("shop"), "refuses Runner lab")
	status, _ := b.get("/console/agents/nowhere/nodes")
	assert.Equal(t, http.StatusNotFound, status)
}
