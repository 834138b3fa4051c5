package dashboard

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pipeops/pipeops-vm-agent/internal/source"

	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/pipeops/pipeops-vm-agent/agent/doctor"
	"github.com/pipeops/pipeops-vm-agent/agent/update"
	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/sizing"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/components"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// long is a name as long as Kubernetes allows.
var long = strings.Repeat("very-long-", 6) + "nam"

// fakeFacts is a cluster whose facts a test sets.
type fakeFacts struct {
	err    error
	nodes  []runnerapi.Node
	policy map[string]string
	own    *kube.Own
	client client.Client
	events []runnerapi.ClusterEvent
	usage  kube.Facts
}

func (f *fakeFacts) PodWarnings(context.Context, string) ([]runnerapi.ClusterEvent, error) {
	return slices.Clone(f.events), f.err
}

func (f *fakeFacts) Facts(context.Context) (kube.Facts, error) {
	facts := f.usage
	facts.KubernetesVersion, facts.Nodes = "v1.36.3", runnerapi.NodeCount{Total: len(f.nodes), Ready: len(f.nodes)}
	return facts, f.err
}
func (f *fakeFacts) ListNodes(context.Context) ([]runnerapi.Node, error) { return f.nodes, f.err }
func (f *fakeFacts) PolicySource() string                                { return "ConfigMap pipeops/pipeops-policy" }
func (f *fakeFacts) ReadPolicy(ctx context.Context) (map[string]string, error) {
	cm := &corev1.ConfigMap{}
	if err := f.client.Get(ctx, client.ObjectKey{Namespace: "pipeops", Name: "pipeops-policy"}, cm); err != nil {
		return f.policy, f.err
	}
	return cm.Data, f.err
}
func (f *fakeFacts) Own(context.Context) (kube.Own, error) {
	if f.own == nil {
		return kube.Own{}, apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "deployments"}, "pipeops-agent")
	}
	return *f.own, f.err
}

// fakeApprovals has one command that waits.
type fakeApprovals struct {
	all      []runnerapi.Approval
	approved string
}

func (f *fakeApprovals) List(context.Context) ([]runnerapi.Approval, error) { return f.all, nil }
func (f *fakeApprovals) Approve(_ context.Context, id string) (runnerapi.Approval, error) {
	f.approved = id
	return runnerapi.Approval{}, nil
}

// rig is a dashboard on a cluster of a test's own, with a browser that has signed in.
type rig struct {
	t         *testing.T
	d         *Dashboard
	server    *httptest.Server
	browser   *http.Client
	client    client.WithWatch
	facts     *fakeFacts
	approvals *fakeApprovals
	acts      audit.Store
	metrics   func() (runnerapi.MetricsHistory, error)
	used      func() (map[runnerapi.Key]sizing.AppUse, error)
	csrf      string
}

func app(namespace, name string, change ...func(*v1alpha1.App)) *v1alpha1.App {
	a := &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "1", Generation: 1}}
	a.Spec.Image, a.Spec.Replicas = "registry.example.com/shop/web:1.4.2", new(int32(2))
	a.Status.Phase, a.Status.ObservedGeneration, a.Status.Revision = runnerapi.PhaseHealthy, 1, 1
	for _, c := range change {
		c(a)
	}
	return a
}

func failing(a *v1alpha1.App) {
	a.Status.Phase = runnerapi.PhaseFailed
	a.Status.Diagnosis = &runnerapi.Diagnosis{Cause: runnerapi.CauseCrashLoop, Message: "the container ends <at once>", Fix: "see its last lines", LastLines: []string{"panic: <script>alert(1)</script>"}}
}

func newRig(t *testing.T, objects ...client.Object) *rig {
	t.Helper()
	scheme, err := appcache.NewScheme()
	require.NoError(t, err)
	objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: objectmeta.Labels()}})
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithReturnManagedFields().Build()
	r := &rig{t: t, client: c, facts: &fakeFacts{client: c}, approvals: &fakeApprovals{}, acts: audit.Files{Dir: t.TempDir()}}
	r.metrics = func() (runnerapi.MetricsHistory, error) {
		return runnerapi.MetricsHistory{}, runnerapi.NotSupported("", "the cluster has no component prometheus")
	}
	opts := Options{
		Namespace: "pipeops", Place: "test", Version: "v1.2.3", Log: zerolog.Nop(), Now: time.Now,
		Audit: r.acts, Acts: r.acts,
		Doctor: func(context.Context) (doctor.Report, error) {
			return doctor.Report{Findings: []doctor.Finding{{Check: "clock", Status: doctor.OK}, {Check: "tunnel", Status: doctor.Failed, Detail: "closed", Fix: "open it"}}}, nil
		},
		Components: func(context.Context) ([]components.Status, error) {
			return []components.Status{{Component: "ingress", What: "routes"}}, nil
		},
		Updates: func(context.Context) (update.Record, error) { return update.Record{}, nil },
	}
	made := makeCluster(opts, c, kubernetesfake.NewClientset().CoreV1(), r.facts, r.approvals)
	made.metrics = func(context.Context, runnerapi.Key, runnerapi.HistoryOptions) (runnerapi.MetricsHistory, error) {
		return r.metrics()
	}
	made.usage = func(context.Context) (map[runnerapi.Key]sizing.AppUse, error) { return r.used() }
	r.d, err = newDashboard(opts, made)
	require.NoError(t, err)
	r.serve()
	return r
}

// serve starts the server and signs the browser in.
func (r *rig) serve() {
	var handler http.Handler
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { handler.ServeHTTP(w, req) }))
	r.t.Cleanup(r.server.Close)
	at, err := url.Parse(r.server.URL)
	require.NoError(r.t, err)
	var port int
	_, err = fmt.Sscanf(at.Port(), "%d", &port)
	require.NoError(r.t, err)
	handler = r.d.Handler(port)
	jar, err := cookiejar.New(nil)
	require.NoError(r.t, err)
	r.browser = &http.Client{Jar: jar}
	r.t.Cleanup(r.browser.CloseIdleConnections)
	body := r.get(strings.TrimPrefix(r.d.Link(at.Host), "http://"+at.Host), http.StatusOK)
	_, rest, _ := strings.Cut(body, `name="csrf" value="`)
	r.csrf, _, _ = strings.Cut(rest, `"`)
	require.NotEmpty(r.t, r.csrf)
}

func (r *rig) get(path string, want int) string {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.server.URL+path, nil)
	require.NoError(r.t, err)
	return r.answer(req, want)
}

func (r *rig) post(path string, form url.Values, want int) string {
	r.t.Helper()
	form.Set("csrf", r.csrf)
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.server.URL+path, strings.NewReader(form.Encode()))
	require.NoError(r.t, err)
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r.answer(req, want)
}

func (r *rig) answer(req *http.Request, want int) string {
	r.t.Helper()
	resp, err := r.browser.Do(req)
	require.NoError(r.t, err)
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	require.NoError(r.t, err)
	require.Equal(r.t, want, resp.StatusCode, string(body))
	return string(body)
}

// paths are all pages without what is about one App.
func paths() (all []string) {
	for _, link := range nav {
		all = append(all, link.Path)
	}
	return all
}

func TestPages_EmptyCluster(t *testing.T) {
	r := newRig(t)
	for path, says := range map[string]string{
		"/": "The agent is not installed", "/apps": "No App is deployed", "/routes": "Nothing is reached from outside",
		"/nodes": "The cluster has no nodes", "/policy": "No command waits", "/audit": "No record yet",
		"/components": "ingress", "/updates": "has not updated itself", "/doctor": "Run the checks",
	} {
		body := r.get(path, http.StatusOK)
		assert.Contains(t, body, says, path)
		assert.Contains(t, body, `<a href="`+path+`" aria-current="page">`, path)
		assert.Equal(t, 1, strings.Count(body, "<h1>"), path)
		assert.NotContains(t, body, "ZgotmplZ", path)
		assert.NotContains(t, body, "&lt;no value&gt;", path)
	}
	assert.Contains(t, r.get("/nowhere", http.StatusNotFound), "The page does not exist")
	assert.Contains(t, r.get("/apps/shop/nowhere", http.StatusNotFound), "There is no App shop/nowhere")
	r.get("/apps/shop/nowhere/explode", http.StatusNotFound)
}

// TestPages_PartialFailure has a caller with few rights, or a cluster that is half down.
func TestPages_PartialFailure(t *testing.T) {
	r := newRig(t, app("shop", "web", failing))
	r.facts.err = apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no right"))
	body := r.get("/", http.StatusOK)
	assert.Contains(t, body, "CrashLoop")
	assert.Contains(t, body, "no right")
	assert.NotContains(t, body, "Nothing is wrong")
	assert.Contains(t, r.get("/nodes", http.StatusForbidden), "no right")
}

func TestAppPage_Diagnosis(t *testing.T) {
	r := newRig(t, app("shop", "web", failing), app("shop", long))
	overview := r.get("/", http.StatusOK)
	assert.Less(t, strings.Index(overview, "CrashLoop"), strings.Index(overview, "Policy for Runners"), "what is wrong comes first")
	list := r.get("/apps", http.StatusOK)
	assert.Less(t, strings.Index(list, "/apps/shop/web"), strings.Index(list, "/apps/shop/"+long), "in trouble first")
	page := r.get("/apps/shop/web", http.StatusOK)
	for _, says := range []string{"CrashLoop", "The container ends &lt;at once&gt;", "see its last lines", "panic: &lt;script&gt;alert(1)", "/apps/shop/web/restart"} {
		assert.Contains(t, page, says)
	}
	assert.NotContains(t, page, "<script>alert")
	assert.Contains(t, r.get("/apps/shop/"+long, http.StatusOK), "No pod exists")
	assert.Contains(t, r.get("/apps?find=CRASH", http.StatusOK), "/apps/shop/web")
	assert.NotContains(t, r.get("/apps?find=CRASH", http.StatusOK), long)
	assert.Contains(t, r.get("/apps?state=Paused", http.StatusOK), "No App matches")
}

// TestAppPage_Source: the page shows the repository that the App comes from.
func TestAppPage_Source(t *testing.T) {
	from := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": source.Group + "/" + source.Version, "kind": source.Kind, "metadata": map[string]any{"namespace": "shop", "name": "deploy"},
		"spec":   map[string]any{"type": "app", "app": "web", "url": "https://git.example.com/shop/deploy.git"},
		"status": map[string]any{"phase": "Ready", "commit": "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567", "observedGeneration": int64(0)},
	}}
	r := newRig(t, app("shop", "web"), app("shop", "api"), from)
	page := r.get("/apps/shop/web", http.StatusOK)
	assert.Contains(t, page, "https://git.example.com/shop/deploy.git")
	assert.Contains(t, page, "0a1b2c3d4e5f")
	assert.NotContains(t, r.get("/apps/shop/api", http.StatusOK), "Git source")
}

// TestAppsPage_Stopped: an App that was scaled to no pods is stopped, and not healthy.
func TestAppsPage_Stopped(t *testing.T) {
	r := newRig(t, app("shop", "web"), app("shop", "idle", func(a *v1alpha1.App) { a.Spec.Replicas = new(int32(0)) }))
	overview := r.get("/", http.StatusOK)
	assert.Contains(t, overview, "1 Healthy</a>")
	assert.Contains(t, overview, `href="/apps?state=Stopped" class="state plain">1 Stopped</a>`)
	stopped := r.get("/apps?state=Stopped", http.StatusOK)
	assert.Contains(t, stopped, "/apps/shop/idle")
	assert.NotContains(t, stopped, "/apps/shop/web")
	assert.NotContains(t, r.get("/apps?state=Healthy", http.StatusOK), "/apps/shop/idle")
}

// podOf returns a pod of an App that runs.
func podOf(app, name string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: objectmeta.AppLabels(app), OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app + "-7d9", UID: "2", Controller: new(true)}}}}
	pod.Spec.Containers = []corev1.Container{{Name: app}}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: app, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	return pod
}

// TestLogPage selects lines without a script. Each pod of the fake cluster has written "fake logs".
func TestLogPage(t *testing.T) {
	r := newRig(t, app("shop", "web"), podOf("web", "web-1"), podOf("web", "web-2"))
	page := r.get("/apps/shop/web/logs", http.StatusOK)
	assert.Equal(t, 2, strings.Count(page, "fake logs</li>"))
	assert.Contains(t, page, "<option>web-2</option>")
	assert.Contains(t, page, `formaction="/apps/shop/web/logs.txt"`)
	page = r.get("/apps/shop/web/logs?pod=web-2&find=FAKE", http.StatusOK)
	assert.Equal(t, 1, strings.Count(page, "fake logs</li>"))
	assert.Contains(t, page, "pod=web-2", "so does its stream")
	assert.Contains(t, r.get("/apps/shop/web/logs?level=error", http.StatusOK), "None of the last 200 lines of each pod matches.")
	assert.Regexp(t, `^\S+ web-1 fake logs\n$`, r.get("/apps/shop/web/logs.txt?pod=web-1", http.StatusOK))
	r.get("/apps/shop/nowhere/logs.txt", http.StatusNotFound)
}

// TestAppPage_Warnings shows the newest events of the App's own pods.
func TestAppPage_Warnings(t *testing.T) {
	web := app("shop", "web")
	r := newRig(t, web, podOf("web", "web-1"), podOf("web-db", "web-db-1"))
	r.facts.events = []runnerapi.ClusterEvent{{Reason: "BackOff", Message: "back-off <restarting>", Object: runnerapi.EventOf{Kind: "Pod", Name: "web-1"}, Count: 7}}
	r.facts.events = append(r.facts.events, runnerapi.ClusterEvent{Reason: "Foreign", Object: runnerapi.EventOf{Kind: "Pod", Name: "web-db-1"}})
	for i := range maxWarnings {
		r.facts.events = append(r.facts.events, runnerapi.ClusterEvent{Reason: fmt.Sprintf("Reason%d.", i), Object: runnerapi.EventOf{Kind: "Pod", Name: "web-1"}})
	}
	page := r.get("/apps/shop/web", http.StatusOK)
	assert.Contains(t, page, "back-off &lt;restarting&gt;")
	assert.Contains(t, page, `<span class="state bad">Not ready</span>`, "a pod that runs and is not ready")
	assert.Contains(t, page, "Reason8.")
	assert.NotContains(t, page, "Reason9.")
	assert.NotContains(t, page, "Foreign")
	r.facts.err = apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no right"))
	page = r.get("/apps/shop/web", http.StatusOK)
	assert.Contains(t, page, "no right")
	assert.Contains(t, page, "<h2>Pods</h2>", "the page shows the rest")
}

func TestAppsPage_Thousand(t *testing.T) {
	var all []client.Object
	for i := range 1000 {
		all = append(all, app("shop", fmt.Sprintf("web-%04d", i)))
	}
	r := newRig(t, all...)
	first := r.get("/apps", http.StatusOK)
	assert.Contains(t, first, "1–50 of 1000")
	assert.Equal(t, 50, strings.Count(first, "<tr id="))
	assert.Contains(t, r.get("/apps?page=20&find=web", http.StatusOK), "951–1000 of 1000")
}

// TestChanges_AskForConfirmation restarts, scales and rolls back.
func TestChanges_AskForConfirmation(t *testing.T) {
	first := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web.r1", Labels: objectmeta.AppLabels("web"), OwnerReferences: []metav1.OwnerReference{
			{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind, Name: "web", UID: "1", Controller: new(true)}}},
		Revision: 1, Data: runtime.RawExtension{Raw: []byte(`{"image":"registry.example.com/shop/web:1.0.0"}`)},
	}
	r := newRig(t, app("shop", "web", func(a *v1alpha1.App) { a.Generation, a.Status.ObservedGeneration, a.Status.Revision = 2, 2, 2 }), first)
	now := func() *v1alpha1.App {
		a := &v1alpha1.App{}
		require.NoError(t, r.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, a))
		return a
	}
	before := now()
	assert.Contains(t, r.get("/apps/shop/web/restart", http.StatusOK), "kubectl -n shop annotate apps.pipeops.io web")
	assert.Contains(t, r.get("/apps/shop/web/scale", http.StatusOK), "kubectl -n shop scale apps.pipeops.io web")
	question := r.get("/apps/shop/web/rollback?revision=1", http.StatusOK)
	assert.Contains(t, question, "controllerrevision web.r1")
	assert.Contains(t, question, "Revision 1 is not known to have been healthy")
	r.get("/apps/shop/web/rollback", http.StatusUnprocessableEntity)
	assert.Equal(t, before.ResourceVersion, now().ResourceVersion, "asking changes nothing")

	assert.Contains(t, r.post("/apps/shop/web/restart", url.Values{}, http.StatusOK), done["restart-app"])
	assert.NotEmpty(t, now().RestartedAt())
	r.post("/apps/shop/web/scale", url.Values{"replicas": {"5"}}, http.StatusOK)
	assert.EqualValues(t, 5, now().Replicas())
	for _, wrong := range []string{"", "-1", "1001", "many", "99999999999"} {
		r.post("/apps/shop/web/scale", url.Values{"replicas": {wrong}}, http.StatusUnprocessableEntity)
	}
	r.post("/apps/shop/web/rollback", url.Values{"revision": {"1"}}, http.StatusOK)
	assert.Equal(t, "registry.example.com/shop/web:1.0.0", now().Spec.Image)
	assert.EqualValues(t, 5, now().Replicas())
	r.post("/apps/shop/web/rollback", url.Values{"revision": {"77"}}, http.StatusNotFound)
	r.post("/apps/shop/nowhere/restart", url.Values{}, http.StatusNotFound)
	r.post("/apps/shop/web/explode", url.Values{}, http.StatusNotFound)

	r.csrf = "x"
	r.post("/apps/shop/web/scale", url.Values{"replicas": {"0"}}, http.StatusForbidden)
	assert.EqualValues(t, 5, now().Replicas())
}

// TestChanges_StopPauseDelete stops, starts, pauses and resumes an App, and deletes it by its name.
func TestChanges_StopPauseDelete(t *testing.T) {
	r := newRig(t, app("shop", "web"), app("shop", "other"))
	now := func() *v1alpha1.App {
		a := &v1alpha1.App{}
		require.NoError(t, r.client.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, a))
		return a
	}
	for _, step := range []struct{ do, offers, command string }{
		{"stop", "start", "scale apps.pipeops.io web --replicas 0"}, {"start", "stop", "--replicas NUMBER"},
		{"pause", "resume", `{"spec":{"paused":true}}`}, {"resume", "pause", `{"spec":{"paused":null}}`},
	} {
		assert.Contains(t, html.UnescapeString(r.get("/apps/shop/web/"+step.do, http.StatusOK)), step.command)
		page := r.post("/apps/shop/web/"+step.do, url.Values{"replicas": {"3"}}, http.StatusOK)
		assert.Contains(t, page, done[step.do+"-app"])
		assert.Contains(t, page, `"/apps/shop/web/`+step.offers+`"`)
		assert.NotContains(t, page, `"/apps/shop/web/`+step.do+`"`)
		assert.Equal(t, step.do == "pause", now().Spec.IsPaused(), step.do)
		assert.Equal(t, step.do == "stop", now().Replicas() == 0, step.do)
	}
	assert.EqualValues(t, 3, now().Replicas())

	for _, typed := range []string{"", "wbe", "shop/web"} {
		page := r.post("/apps/shop/web/delete", url.Values{"confirm": {typed}}, http.StatusUnprocessableEntity)
		assert.Contains(t, page, "Type web to confirm", "the form is shown again")
		assert.NotNil(t, now())
	}
	page := r.post("/apps/shop/web/delete", url.Values{"confirm": {"web"}}, http.StatusOK)
	assert.Contains(t, page, done["delete-app"])
	assert.NotContains(t, page, "/apps/shop/web")
	assert.Contains(t, page, "/apps/shop/other")
}

func TestPause(t *testing.T) {
	r := newRig(t, app("shop", "web"))
	assert.Contains(t, html.UnescapeString(r.get("/policy/pause", http.StatusOK)), `{"data":{"paused":"true"}}`)
	assert.Contains(t, r.post("/policy/pause", url.Values{"on": {"true"}}, http.StatusOK), done["pause"])
	assert.Contains(t, r.get("/", http.StatusOK), "All commands of Runners are refused")
	assert.Contains(t, html.UnescapeString(r.get("/policy/pause?on=false", http.StatusOK)), `{"data":{"paused":"false"}}`)
	assert.Contains(t, r.post("/policy/pause", url.Values{"on": {"false"}}, http.StatusOK), done["resume"])
	cm := &corev1.ConfigMap{}
	require.NoError(t, r.client.Get(t.Context(), client.ObjectKey{Namespace: "pipeops", Name: "pipeops-policy"}, cm))
	assert.Equal(t, map[string]string{"paused": "false"}, cm.Data)

	cm.Data["policy.yaml"] = "paused: true"
	require.NoError(t, r.client.Update(t.Context(), cm))
	assert.Contains(t, r.post("/policy/pause", url.Values{"on": {"false"}}, http.StatusConflict), "olicy.yaml itself pauses")
	r.post("/apps/shop/web/pause", url.Values{}, http.StatusOK)
	r.post("/apps/shop/web/scale", url.Values{"replicas": {"x"}}, http.StatusUnprocessableEntity)
	kept, err := audit.Read(t.Context(), r.acts, 0, 10)
	require.NoError(t, err)
	var acts []string
	for _, a := range kept.Items {
		acts = append(acts, fmt.Sprint(a.Runner, " ", a.Command, " ", a.Namespace, "/", a.Name, " ", a.Outcome))
	}
	assert.Equal(t, []string{
		"(owner) pause-runners / done", "(owner) resume-runners / done", "(owner) resume-runners / done",
		"(owner) pause-app shop/web done", "(owner) scale-app shop/web refused",
	}, acts, "the audit log has what the owner did")
	report, err := audit.Verify(t.Context(), r.acts, kept.Head)
	require.NoError(t, err)
	assert.Empty(t, report.Problems)
	require.NoError(t, r.client.Get(t.Context(), client.ObjectKeyFromObject(cm), cm))
	cm.Data["policy.yaml"] = "rules: 1"
	require.NoError(t, r.client.Update(t.Context(), cm))
	assert.Contains(t, r.get("/", http.StatusOK), "The policy is invalid")
	assert.Contains(t, r.get("/policy", http.StatusOK), "All commands are refused")
}

func TestApprovalsPage(t *testing.T) {
	r := newRig(t)
	r.approvals.all = []runnerapi.Approval{{ID: "9f86", Runner: "ci", Command: "exec", Request: runnerapi.ApprovalView{Query: map[string][]string{"command": {"sh", "-c", "<b>" + strings.Repeat("x", 9000) + "end"}}, Unseen: "it is a session"}, Asked: time.Now(), Until: time.Now().Add(time.Hour)}}
	assert.Contains(t, r.get("/", http.StatusOK), "1 command waits")
	shown := r.get("/policy", http.StatusOK)
	for _, part := range []string{`query command: &#34;sh&#34; &#34;-c&#34; &#34;&lt;b&gt;x`, "xend&#34;", "NOT ALL IS SHOWN: it is a session"} {
		assert.Contains(t, shown, part)
	}
	r.post("/approve", url.Values{"id": {"9f86"}}, http.StatusOK)
	assert.Equal(t, "9f86", r.approvals.approved)
}

func TestDoctorPage(t *testing.T) {
	r := newRig(t)
	assert.NotContains(t, r.get("/doctor", http.StatusOK), "open it")
	body := r.post("/doctor", url.Values{}, http.StatusOK)
	assert.Contains(t, body, "open it")
	assert.Less(t, strings.Index(body, "tunnel"), strings.Index(body, "clock"), "what failed comes first")
}

// TestStream_FollowsCluster waits for the event of a new App.
func TestStream_FollowsCluster(t *testing.T) {
	r := newRig(t)
	events := r.listen("/live/apps")
	assert.Contains(t, await.Receive(t, events, "the page as it is"), "No App is deployed")
	require.NoError(t, r.client.Create(t.Context(), app("shop", "fresh")))
	assert.Contains(t, await.Receive(t, events, "the page with the App"), "/apps/shop/fresh")
}

// TestPages_NeedSession tries each path, and each change.
func TestPages_NeedSession(t *testing.T) {
	r := newRig(t, app("shop", "web"))
	r.browser.Jar = nil
	for _, path := range append(paths(), "/apps/shop/web", "/apps/shop/web/logs", "/apps/shop/web/logs.txt", "/live/apps", "/live/", "/live/nodes", "/live/policy", "/live/routes", "/live/audit", "/live/updates", "/live/apps/shop/web", "/live/apps/shop/web/logs", "/apps/shop/web/restart") {
		assert.NotContains(t, r.get(path, http.StatusUnauthorized), "registry.example.com", path)
	}
	for _, path := range []string{"/policy/pause", "/approve", "/doctor", "/doctor/bundle", "/apps/shop/web/restart", "/apps/shop/web/scale", "/apps/shop/web/rollback", "/apps/shop/web/delete"} {
		r.post(path, url.Values{"on": {"true"}, "replicas": {"1"}, "revision": {"1"}}, http.StatusUnauthorized)
	}
}

func TestReadyz(t *testing.T) {
	for text, want := range map[string]Readiness{
		`{"status":"ready","version":"v1"}`:                                                                             {Ready: true, Version: "v1"},
		`{"status":"ready","version":"v1","degraded":"a; b"}`:                                                           {Ready: true, Version: "v1", Worse: []string{"a", "b"}},
		`{"status":503,"detail":"not ready: apps: starting; tunnel: no way"}`:                                           {Missing: []string{"apps: starting", "tunnel: no way"}},
		`{"status":503,"detail":"not ready: tunnel: waiting: no way; look at it; by itself; control plane: no answer"}`: {Missing: []string{"tunnel: waiting: no way; look at it; by itself", "control plane: no answer"}},
	} {
		got, err := DecodeReadiness([]byte(text))
		require.NoError(t, err)
		assert.Equal(t, want, got, text)
	}
	_, err := DecodeReadiness([]byte("<html>"))
	require.Error(t, err)
	assert.Equal(t, "v1.2.3", tagOf("registry.example.com:5000/agent:v1.2.3@sha256:00"))
	assert.Empty(t, tagOf("registry.example.com:5000/agent"))
}
