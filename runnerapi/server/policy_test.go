package server_test

import (
	"cmp"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
)

// asked is a policy that remembers what it was asked. It says what its function
// says.
type asked struct {
	mu       sync.Mutex
	intents  []runnerapi.Intent
	say      func(runnerapi.Intent) error
	changed  chan struct{}
	streams  int  // that a grant has
	recorded bool // whether sessions are
	audited  bool // whether each command has to be recorded first
}

// problemOf is the problem that a client was answered.
var problemOf = problemtest.Of

func newAsked(say func(runnerapi.Intent) error) *asked {
	return &asked{say: say, changed: make(chan struct{})}
}

func refuseAll(i runnerapi.Intent) error {
	return runnerapi.PolicyDenied("ask the owner", "rule %q does not allow %s", "none", i.Command)
}

func (a *asked) Decide(i runnerapi.Intent) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.intents = append(a.intents, i)
	return a.say(i)
}

func (a *asked) Changed() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.changed
}

// become says something else from now on.
func (a *asked) become(say func(runnerapi.Intent) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.say = say
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *asked) AuditRequired() bool { return a.audited }

func (a *asked) Records(runnerapi.Intent) bool { return a.recorded }

func (a *asked) Approval(runnerapi.Intent) time.Duration { return 0 }
func (a *asked) ApprovesUnseen(runnerapi.Intent) bool    { return false }

// Visible says of a namespace what Decide would.
func (a *asked) Visible(runner, command, namespace string) bool {
	return a.Decide(runnerapi.Intent{Command: command, Runner: runner, Namespace: namespace}) == nil
}

// KubernetesGrant is somebody, or whom the request impersonates, where the fake allows it.
func (a *asked) KubernetesGrant(i runnerapi.Intent) (runnerapi.KubernetesGrant, error) {
	g := runnerapi.KubernetesGrant{As: runnerapi.KubernetesIdentity{User: "somebody", Groups: []string{"some", "people"}}}
	if i.Kubernetes.Impersonate.User != "" {
		g.As = i.Kubernetes.Impersonate
	}
	g.Streams = a.streams
	return g, a.Decide(i)
}

func (a *asked) all() []runnerapi.Intent {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]runnerapi.Intent(nil), a.intents...)
}

// setRules gives a policy of the real kind other rules.
func setRules(t *testing.T, p *policy.Policy, rules string) {
	t.Helper()
	doc, err := policy.Parse([]byte(rules))
	require.NoError(t, err)
	p.Set(doc, nil)
}

func policyOf(t *testing.T, rules string) *policy.Policy {
	t.Helper()
	p := policy.New("policy.yaml")
	setRules(t, p, rules)
	return p
}

// governed is a fake agent with a policy.
func governed(t *testing.T, p backend.Policy) *runnertest.Agent {
	t.Helper()
	agent := runnertest.New(t, runnertest.NewBackend())
	agent.Policy, agent.Kubernetes = p, nowhere{}
	agent.Start()
	return agent
}

// Sends every call of the table with its example, with a policy that allows nothing: each is
// refused under its own name, and none reaches the backend.
func TestPolicy_CheckedForEveryCall(t *testing.T) {
	p := newAsked(refuseAll)
	agent := governed(t, p)
	r := newRaw(t, agent)
	for _, c := range runnerapi.Calls() {
		path, _ := examplePath(c)
		resp, answer := r.do(c.Method, path, c.Body, "Content-Type", "application/json")
		if c.Access == runnerapi.Open {
			assert.Less(t, resp.StatusCode, 300, c.Path)
			assert.False(t, strings.HasPrefix(c.Path, "/v1/"), "%s is nobody's without a Runner", c.Path)
			continue
		}
		assert.Equal(t, http.StatusForbidden, resp.StatusCode, "%s %s", c.Method, path)
		assert.Contains(t, string(answer), `"policy_denied"`)
		last := p.all()[len(p.all())-1]
		assert.Equal(t, c.ID, last.Command)
		assert.Equal(t, c.Access, last.Access)
		assert.Equal(t, runnertest.RunnerName, last.Runner)
		assert.Equal(t, strings.Contains(c.Path, "{namespace}") || c.Path == "/v1/apply", last.Namespace != "", c.Path)
		named := c.Upgrades() || c.ID == runnerapi.KubernetesCall || c.ID == runnerapi.AccessLogCall || c.ID == "get-join-token"
		assert.Equal(t, c.Method == http.MethodGet, c.Access == runnerapi.Reads || named, "a call that is not a GET changes something: %s %s", c.Method, c.Path)
	}
	assert.Empty(t, agent.Backend.Calls())
}

// Policies use these names; clients see the operationIds.
func TestCalls_MatchOpenAPI(t *testing.T) {
	paths := openAPI(t)["paths"].(map[string]any)
	for _, c := range runnerapi.Calls() {
		if c.Access == runnerapi.Open {
			assert.Empty(t, c.ID)
			continue
		}
		op := paths[c.Path].(map[string]any)[strings.ToLower(c.Method)].(map[string]any)
		assert.Equal(t, op["operationId"], c.ID, "%s %s", c.Method, c.Path)
	}
}

func TestPolicy_ChecksChartObjects(t *testing.T) {
	p := newAsked(func(i runnerapi.Intent) error {
		if len(i.Objects) > 0 {
			return runnerapi.PolicyDenied("stay within it", "no %s", i.Objects[0].Kind)
		}
		return nil
	})
	agent := governed(t, p)
	_, err := agent.Client().Releases().Deploy(t.Context(), runnerapi.Key{Namespace: "production", Name: "guide"},
		runnerapi.ReleaseSpec{Chart: runnerapi.ChartSource{Archive: []byte("x")}}, runnerapi.WriteOptions{})
	known := problemOf(t, err)
	assert.Equal(t, runnerapi.CodePolicyDenied, known.Code)
	assert.Equal(t, "no Service", known.Detail)
}

func TestPolicy_ChecksSpec(t *testing.T) {
	allow := func(runnerapi.Intent) error { return nil }
	p := newAsked(allow)
	client := governed(t, p).Client()
	ctx := t.Context()
	for _, image := range []string{"a/b:1", "a/b:2"} {
		_, err := client.Apps().Deploy(ctx, web, runnerapi.AppSpec{Image: image}, runnerapi.WriteOptions{})
		require.NoError(t, err)
	}
	two := int32(2)
	_, err := client.Apps().Scale(ctx, web, runnerapi.Scale{Replicas: &two}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	_, err = client.Apps().Rollback(ctx, web, runnerapi.RollbackTo{Revision: 1}, runnerapi.WriteOptions{})
	require.NoError(t, err)

	var images []string
	var scales []int32
	for _, i := range p.all() {
		if i.App != nil {
			images = append(images, i.Command+" "+i.App.Image)
		}
		if i.Scale != nil {
			scales = append(scales, *i.Scale.Replicas)
		}
	}
	assert.Equal(t, []string{"put-app a/b:1", "put-app a/b:2", "rollback-app a/b:1"}, images)
	assert.Equal(t, []int32{2}, scales)

	p.become(func(i runnerapi.Intent) error {
		if i.Command == runnerapi.AdoptNamespace {
			assert.Equal(t, runnerapi.Named, i.Access)
			return refuseAll(i)
		}
		return nil
	})
	_, err = client.Namespaces().Set(ctx, "staging", runnerapi.NamespaceSpec{}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	_, err = client.Namespaces().Set(ctx, "theirs", runnerapi.NamespaceSpec{Adopt: true}, runnerapi.WriteOptions{})
	assert.Equal(t, runnerapi.CodePolicyDenied, problemOf(t, err).Code)

	p.become(func(i runnerapi.Intent) error {
		if i.Command == runnerapi.AdoptApp {
			assert.Equal(t, runnerapi.Named, i.Access)
			return refuseAll(i)
		}
		return nil
	})
	theirs, spec := runnerapi.Key{Namespace: "production", Name: "theirs"}, runnerapi.AppSpec{Image: "a/b:1"}
	_, err = client.Apps().Deploy(ctx, theirs, spec, runnerapi.WriteOptions{Adopt: true})
	assert.Equal(t, runnerapi.CodePolicyDenied, problemOf(t, err).Code)
	_, err = client.Apps().Deploy(ctx, theirs, spec, runnerapi.WriteOptions{})
	require.NoError(t, err)
}

// The policy changes while a log is followed.
func TestLogs_EndWithPolicy(t *testing.T) {
	p := newAsked(func(runnerapi.Intent) error { return nil })
	agent := governed(t, p)
	client := agent.Client()
	_, err := client.Apps().Deploy(t.Context(), web, runnerapi.AppSpec{Image: "a"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		ended <- client.Apps().Logs(t.Context(), web, runnerapi.LogOptions{Follow: true, Tail: -1}, func(runnerapi.LogLine) error { return nil })
	}()
	await.Until(t, "the agent follows the log", func() bool { return agent.Backend.Following() > 0 })
	p.become(refuseAll)
	err = await.Receive(t, ended, "the end of the log")
	assert.Equal(t, runnerapi.CodePolicyDenied, problemOf(t, err).Code)
}

// The policy is asked about the namespace in which the call would run.
func TestPolicy_EscapedNamespace(t *testing.T) {
	for _, path := range []string{"/v1/namespaces/prod%75ction/apps", "/v1/namespaces/%70roduction/apps", "/v1/namespaces/production/apps"} {
		p := newAsked(refuseAll)
		h := server.New(p, server.Config{TrustDomain: runnertest.TrustDomain, Log: zerolog.Nop()})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, verified(t, http.MethodGet, path))
		assert.Equal(t, http.StatusForbidden, w.Code)
		require.Len(t, p.all(), 1)
		assert.Equal(t, "production", p.all()[0].Namespace, path)
	}
}

// A server without a policy is a mistake of ours, and no call may get through because of it.
func TestNew_DeniesWithoutPolicy(t *testing.T) {
	b := runnertest.NewBackend()
	h := server.New(nil, server.Config{Apps: b.Apps(), Cluster: b.Cluster(), Kubernetes: silentAPI{}, TrustDomain: runnertest.TrustDomain, Log: zerolog.Nop()})
	for _, call := range runnerapi.Calls() {
		if !strings.HasPrefix(call.Path, "/v1/") {
			continue // health and the document, which anyone may read
		}
		path := strings.NewReplacer("{", "", "}", "", "*", "api").Replace(call.Path)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, verified(t, cmp.Or(call.Method, http.MethodGet), path))
		assert.Equal(t, http.StatusForbidden, w.Code, "%s %s: %s", call.Method, path, w.Body)
	}
}
