package hostile_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

// owner keeps the commands that wait, and approves them.
type owner struct {
	mu       sync.Mutex
	waiting  runnerapi.Approval // the last one
	bytes    string             // of it
	approved map[string]bool
}

func (o *owner) Use(_ context.Context, r backend.ApprovalRequest) (runnerapi.Approval, bool, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.approved[string(r.Bytes)] {
		delete(o.approved, string(r.Bytes))
		return r.Approval, true, nil
	}
	o.waiting, o.bytes = r.Approval, string(r.Bytes)
	o.waiting.ID = "1"
	return o.waiting, false, nil
}

func (o *owner) approve() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.approved = map[string]bool{o.bytes: true}
}

// forget withdraws all approvals.
func (o *owner) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.approved = nil
}

// shown returns all that the owner is shown.
func (o *owner) shown() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.waiting.Request.Lines(), "\n")
}

// apiServer is a fake API server that keeps the requests that it gets.
type apiServer struct {
	url *url.URL

	mu   sync.Mutex
	took []string
}

func (*apiServer) OwnNamespace() string { return "pipeops" }

func (a *apiServer) APIServer() (*url.URL, http.RoundTripper, error) {
	return a.url, http.DefaultTransport, nil
}

func (*apiServer) Namespaced(context.Context, string, string, string) (bool, error) { return true, nil }

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.took = append(a.took, fmt.Sprintf("%s %s as %s %v %s%s %s", r.Method, r.URL, r.Header.Get("Impersonate-User"),
		r.Header["Impersonate-Group"], r.Header.Get("Content-Type"), r.Header.Get("Kubectl-Session"), body))
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, "{}")
}

func (a *apiServer) all() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.took
}

// attack is a Runner that needs approvals, and what it attacks.
type attack struct {
	t     *testing.T
	agent *runnertest.Agent
	owner *owner
	api   *apiServer
}

func newAttack(t *testing.T, settings string) *attack {
	t.Helper()
	doc, err := policy.Parse([]byte("rules: [{name: careful, approval: 10m" + settings + `, kinds: ["*"],
  commands: ["*", exec-app, port-forward-app, apply-manifests, put-release, put-source, kubernetes-api],
  kubernetes: {user: dev, impersonate: {users: [admin], groups: [ops]}}}]`))
	require.NoError(t, err)
	p := policy.New("policy.yaml")
	p.Set(doc, nil)
	api := &apiServer{}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	api.url, err = url.Parse(server.URL)
	require.NoError(t, err)
	a := &attack{t: t, agent: runnertest.New(t, runnertest.NewBackend()), owner: &owner{}, api: api}
	a.agent.Policy, a.agent.Approvals, a.agent.Kubernetes = p, a.owner, api
	a.agent.Start()
	return a
}

// sent is a request of a Runner.
type sent struct {
	runner, method, path, body string
	header                     http.Header
}

func (s sent) with(change func(*sent)) sent {
	s.header = s.header.Clone()
	change(&s)
	return s
}

// send returns the status and the body of the answer.
func (a *attack) send(s sent) (int, string) {
	a.t.Helper()
	cert := a.agent.CA.Issue(a.t, credentials.RunnerURI(runnertest.TrustDomain, s.runner))
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{RootCAs: a.agent.CA.Pool, ServerName: runnertest.ServerName, MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}},
	}}
	r, err := http.NewRequestWithContext(a.t.Context(), s.method, "https://"+a.agent.Address+s.path, strings.NewReader(s.body))
	require.NoError(a.t, err)
	r.Header = s.header.Clone()
	resp, err := client.Do(r)
	require.NoError(a.t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(a.t, err)
	return resp.StatusCode, string(text)
}

const collection = "/v1/kubernetes/api/v1/namespaces/shop/configmaps"

// An approval is good for what the owner was shown, and for nothing else.
func TestApproval_BindsWholeRequest(t *testing.T) {
	a := newAttack(t, "")
	harmless := sent{
		runner: runnertest.RunnerName, method: http.MethodPatch, path: collection + "/web?fieldManager=ci", body: `{"data":{"a":"b"}}`,
		header: http.Header{"Content-Type": {"application/merge-patch+json"}, "Kubectl-Session": {"1"}},
	}
	status, said := a.send(harmless)
	require.Equal(t, http.StatusForbidden, status, said)
	require.Contains(t, said, "approval_required")
	for name, evil := range map[string]sent{
		"another Runner":   harmless.with(func(s *sent) { s.runner = "other" }),
		"another identity": harmless.with(func(s *sent) { s.header.Set("Impersonate-User", "admin") }),
		"another group": harmless.with(func(s *sent) {
			s.header["Impersonate-User"], s.header["Impersonate-Group"] = []string{"admin"}, []string{"ops"}
		}),
		"another content type":   harmless.with(func(s *sent) { s.header.Set("Content-Type", "application/strategic-merge-patch+json") }),
		"another form of answer": harmless.with(func(s *sent) { s.header.Set("Accept", "application/yaml") }),
		"another query":          harmless.with(func(s *sent) { s.path += "&force=true" }),
		"another path":           harmless.with(func(s *sent) { s.path = strings.Replace(s.path, "web", "api", 1) }),
		"another method":         harmless.with(func(s *sent) { s.method = http.MethodPut }),
		"another body":           harmless.with(func(s *sent) { s.body = `{"data":{"a":"evil"}}` }),
	} {
		a.owner.forget()
		a.send(harmless)
		a.owner.approve()
		status, said := a.send(evil)
		assert.Equal(t, http.StatusForbidden, status, "%s: %s", name, said)
	}
	a.owner.forget()
	require.Empty(t, a.api.all(), "nothing was carried out")

	a.send(harmless)
	shown := a.owner.shown()
	a.owner.approve()
	status, said = a.send(harmless.with(func(s *sent) { // what differs is dropped, and not passed on
		s.path += "&broken=%zz;force=true"
		s.header.Set("Kubectl-Session", "2")
	}))
	require.Equal(t, http.StatusOK, status, said)
	require.Equal(t, []string{`PATCH /api/v1/namespaces/shop/configmaps/web?fieldManager=ci as dev [] application/merge-patch+json {"data":{"a":"b"}}`}, a.api.all())
	for _, part := range []string{"PATCH " + collection + "/web", `as user "dev"`, `query fieldManager: "ci"`, `header Content-Type: "application/merge-patch+json"`, `body: {"data":{"a":"b"}}`} {
		assert.Contains(t, shown, part)
	}
}

// The owner is shown all of a command, and no secret value.
func TestApproval_ShowsWholeRequest(t *testing.T) {
	a := newAttack(t, "")
	const shop = "/v1/namespaces/shop/"
	const json = "application/json"
	for name, c := range map[string]struct {
		method, path, media, body string
		shows                     []string
	}{
		"command line":  {"POST", collection[:len(collection)-len("configmaps")] + "pods/web/exec?command=env&command=sh&command=-c&command=evil&stdout=true", "", "", []string{`"env" "sh" "-c" "evil"`}},
		"selector":      {"DELETE", collection + "?labelSelector=app%21%3Dnone", "", "", []string{`labelSelector: "app!=none"`}},
		"source":        {"PUT", shop + "sources/web", json, `{"url":"https://git.example.com/evil.git","ref":{"branch":"evil"},"type":"manifests"}`, []string{"https://git.example.com/evil.git", `"branch":"evil"`}},
		"chart":         {"PUT", shop + "releases/web", json, `{"chart":{"repository":"https://evil.example.com","name":"web"},"values":{"image":"evil","dbPassword":"hunter2","auth":{"token":["hunter2"]}}}`, []string{"https://evil.example.com", `"image":"evil"`, `"dbPassword":"(secret, 7 bytes)"`}},
		"environment":   {"PUT", shop + "apps/web", json, `{"image":"a","command":["sh","-c","evil"],"env":[{"name":"LD_PRELOAD","value":"/evil"}]}`, []string{`"evil"`, `"/evil"`}},
		"Secret":        {"PUT", shop + "secrets/web", json, `{"data":{"a":"hunter2"}}`, []string{`"a":"(secret, 7 bytes)"`}},
		"set":           {"POST", "/v1/apply?namespace=shop&set=web", "application/yaml", "kind: Secret\napiVersion: v1\nstringData: {a: hunter2}\n---\nkind: ConfigMap\napiVersion: v1\ndata: {a: evil}\n", []string{`"a":"(secret, 7 bytes)"`, `"a":"evil"`}},
		"SecretList":    {"POST", "/v1/apply?namespace=shop&set=web", "application/yaml", "kind: SecretList\napiVersion: v1\nitems: [{metadata: {name: a}, stringData: {a: hunter2}}]\n", []string{`"a":"(secret, 7 bytes)"`}},
		"no Secret":     {"POST", "/v1/apply?namespace=shop&set=web", "application/yaml", "kind: Secret\napiVersion: evil.example.com/v1\nstringData: {a: evil}\n", []string{`"a":"evil"`}},
		"Secret's API":  {"POST", "/v1/kubernetes/api/v1/namespaces/shop/secrets", json, `{"metadata":{"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"hunter2"}},"data":{"a":"hunter2"}}`, []string{`"a":"(secret, 7 bytes)"`}},
		"JSON patch":    {"PATCH", "/v1/kubernetes/api/v1/namespaces/shop/secrets/web", "application/json-patch+json", `[{"op":"add","path":"/data/a","value":"hunter2"}]`, []string{"/data/a"}},
		"YAML":          {"PATCH", collection + "/web", "application/apply-patch+yaml", "data: {a: yes}", []string{`"a":true`}},
		"hidden letter": {"PATCH", collection + "/web", json, "{\"data\":{\"a\":\"\u202eevil\"}}", []string{`\u202eevil`}},
	} {
		t.Run(name, func(t *testing.T) {
			s := sent{runner: runnertest.RunnerName, method: c.method, path: c.path, body: c.body, header: http.Header{}}
			if c.media != "" {
				s.header.Set("Content-Type", c.media)
			}
			status, said := a.send(s)
			require.Equal(t, http.StatusForbidden, status, said)
			require.Contains(t, said, "approval_required")
			shown := a.owner.shown()
			for _, part := range c.shows {
				assert.Contains(t, shown, part)
			}
			assert.NotContains(t, shown, "hunter2")
			assert.NotContains(t, shown, "NOT ALL IS SHOWN")
		})
	}
}

// What the owner cannot be shown is refused, unless the owner approves it unseen.
func TestApproval_RefusesUnseen(t *testing.T) {
	strict, lenient := newAttack(t, ""), newAttack(t, ", approveUnseen: true")
	pod := "/v1/kubernetes/api/v1/namespaces/shop/pods/web/"
	for name, c := range map[string]struct{ method, path, media, body string }{
		"session with input":   {"POST", pod + "exec?command=sh&stdin=true", "", ""},
		"attachment":           {"POST", pod + "attach?stdin=1", "", ""},
		"forwarded port":       {"POST", pod + "portforward", "", ""},
		"exec-app":             {"GET", "/v1/namespaces/shop/apps/web/exec?command=sh&stdin=true", "", ""},
		"port-forward-app":     {"GET", "/v1/namespaces/shop/apps/web/portforward?port=80", "", ""},
		"protobuf":             {"POST", collection, "application/vnd.kubernetes.protobuf", "k8s\x00"},
		"large body":           {"POST", collection, "application/json", `{"data":{"a":"` + strings.Repeat("x", 64<<10) + `"}}`},
		"field twice":          {"POST", collection, "application/json", `{"data":{"a":"b"},"data":{"a":"evil"}}`},
		"second document":      {"PATCH", collection + "/web", "application/apply-patch+yaml", "data: {}\n---\ndata: {a: evil}\n"},
		"chart in the request": {"PUT", "/v1/namespaces/shop/releases/web", "application/json", `{"chart":{"archive":"H4sIAAAA"}}`},
	} {
		s := sent{runner: runnertest.RunnerName, method: c.method, path: c.path, body: c.body, header: http.Header{}}
		if c.media != "" {
			s.header.Set("Content-Type", c.media)
		}
		status, said := strict.send(s)
		assert.Equal(t, http.StatusForbidden, status, name)
		assert.Contains(t, said, "cannot be shown", name)
		assert.Contains(t, said, "policy_denied", name)
		_, said = lenient.send(s)
		assert.Contains(t, said, "approval_required", name)
		assert.Contains(t, lenient.owner.shown(), "NOT ALL IS SHOWN", name)
	}
}
