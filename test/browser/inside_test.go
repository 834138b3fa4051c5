package browser_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/browser"
)

// logLines are what the pod of App web has written before its log is followed.
var logLines = []string{
	"listening on :8080", `{"level":"warn","msg":"the database is slow","took":"2.1s"}`, "GET /cart 200 " + strings.Repeat("very-long-parameter=value&", 12),
	"ERROR cannot connect to postgres://db:5432: connection refused", "panic: no database",
}

// answers are what the parts of a cluster answer that are not there: metrics-server, and a kubelet.
func (s *scene) answers(r *http.Request) *http.Response {
	var body io.Reader
	switch path := r.URL.Path; {
	case path == "/apis/metrics.k8s.io/v1beta1/pods":
		body = strings.NewReader(metricsOf("api"))
	case strings.HasSuffix(path, "/web-7d9c8b6f4-x2x9p/log") && r.URL.Query().Get("follow") == "true":
		written, writer := io.Pipe()
		context := r.Context()
		go func() {
			for {
				select {
				case <-context.Done():
					_ = writer.CloseWithError(context.Err())
					return
				case line := <-s.written:
					_, _ = writer.Write(logged(time.Now(), line))
				}
			}
		}()
		body = written
	case strings.HasSuffix(path, "/web-7d9c8b6f4-x2x9p/log"):
		body = bytes.NewReader(logged(began, logLines...))
	default:
		return nil
	}
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: -1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(body),
	}
}

// began is when the pod has written its first lines.
var began = time.Now().Add(-time.Minute)

// logged returns lines as the kubelet sends them.
func logged(at time.Time, lines ...string) []byte {
	var out bytes.Buffer
	for _, line := range lines {
		out.WriteString(at.UTC().Format(time.RFC3339Nano) + " " + line + "\n")
	}
	return out.Bytes()
}

// metricsOf returns what metrics-server reports of a pod of an App.
func metricsOf(app string) string {
	text, _ := json.Marshal(map[string]any{"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": map[string]any{}, "items": []any{
		map[string]any{
			"metadata":  map[string]any{"namespace": "production", "name": app + "-1", "labels": objectmeta.AppLabels(app)},
			"timestamp": time.Now().UTC().Format(time.RFC3339), "window": "15s",
			"containers": []any{map[string]any{"name": app, "usage": map[string]any{"cpu": "120m", "memory": "96Mi"}}},
		},
	}})
	return string(text)
}

// inside gives App web a pod with a warning, and two revisions.
func (s *scene) inside(t *testing.T) {
	t.Helper()
	ctx, c := t.Context(), s.env.Client
	a := &v1alpha1.App{}
	require.NoError(t, c.Get(ctx, client.ObjectKey{Namespace: "production", Name: "web"}, a))
	labels := objectmeta.AppLabels("web")
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "production", Name: "web-7d9c8b6f4"},
		Spec: appsv1.ReplicaSetSpec{Replicas: new(int32), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: a.Spec.Image}}},
		}},
	}
	require.NoError(t, c.Create(ctx, set)) // the cluster's garbage collector deletes a pod without its owner
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "production", Name: "web-7d9c8b6f4-x2x9p", Labels: labels, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: set.Name, UID: set.UID, Controller: new(true)}}},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "web", Image: a.Spec.Image}}, AutomountServiceAccountToken: new(false)},
	}
	require.NoError(t, c.Create(ctx, pod))
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error"}}
	pod.Status.Phase, pod.Status.ContainerStatuses = corev1.PodRunning, []corev1.ContainerStatus{
		{Name: "web", RestartCount: 14, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, LastTerminationState: ended},
	}
	require.NoError(t, c.Status().Update(ctx, pod))
	require.NoError(t, c.Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "production", Name: "web.1"}, Type: corev1.EventTypeWarning, Reason: "BackOff", Count: 14,
		Message: "Back-off restarting failed container web in pod " + pod.Name + "_production", LastTimestamp: metav1.Now(),
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "production", Name: pod.Name},
	}))
	for i, changes := range []string{`[]`, `[{"field":"image","kind":"changed","from":"registry.example.com/shop/web:1.4.1","to":"registry.example.com/shop/web:1.4.2"},{"field":"env[DATABASE_URL]","kind":"added"}]`} {
		number := int64(i + 1)
		require.NoError(t, c.Create(ctx, &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Namespace: "production", Name: "web.r" + string(rune('1'+i)), Labels: objectmeta.AppLabels("web"),
				Annotations:     map[string]string{objectmeta.ChangedBy: "ci", objectmeta.Changes: changes},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind, Name: "web", UID: a.UID, Controller: new(true)}}},
			Revision: number, Data: runtime.RawExtension{Raw: []byte(`{"image":"registry.example.com/shop/web:1.4.` + string(rune('1'+i)) + `"}`)},
		}))
	}
}

// explore reads an App's page and its log as a person does who looks for what is wrong.
func (s *scene) explore(t *testing.T, b *browser.Browser) {
	t.Helper()
	b.Resize(browser.Screens["wide"][0], browser.Screens["wide"][1])
	b.Visit(s.site+"/apps/production/web", "h1")
	assert.Contains(t, b.Text(), "Back-off restarting failed container")
	b.Click("details.changes summary")
	assert.Contains(t, b.Text(), "registry.example.com/shop/web:1.4.1 → registry.example.com/shop/web:1.4.2")
	assert.Contains(t, b.Text(), "added; the value is not shown")
	b.Accessible("app-changes")
	b.Picture("app-changes")
	browser.Get(b, chromedp.Evaluate[bool](`window.stays = true`))
	a := &v1alpha1.App{}
	require.NoError(t, s.env.Client.Get(t.Context(), client.ObjectKey{Namespace: "production", Name: "web"}, a))
	a.Status.WaitingFor = "the database"
	require.NoError(t, s.env.Client.Status().Update(t.Context(), a))
	shows(t, b, "Waiting for the database.", true)
	assert.Contains(t, b.Text(), "added; the value is not shown", "what is unfolded stays so")
	s.exploreLog(t, b)
}

// exploreLog searches, filters and pauses a log that goes on.
func (s *scene) exploreLog(t *testing.T, b *browser.Browser) {
	t.Helper()
	b.Visit(s.site+"/apps/production/web/logs", "#pause")
	says := func(what string) {
		t.Helper()
		await.Until(t, "the page counts "+what, func() bool { return strings.Contains(b.Text(), what) })
	}
	says("5 lines.")
	b.Fill("#find", "DATABASE")
	says("2 of 5 lines.")
	b.Fill("#find", "")
	b.Fill("#level", "error")
	says("2 of 5 lines.")
	assert.NotContains(t, b.Text(), "listening on")
	b.Accessible("logs-errors")
	b.Picture("logs-errors")
	b.Fill("#level", "")
	b.Click("#pause")
	s.written <- "a line during the pause"
	says("Resume (1 new)")
	assert.NotContains(t, b.Text(), "a line during the pause")
	b.Click("#pause")
	says("6 lines.")
	assert.Contains(t, b.Text(), "a line during the pause")
	b.Fill("#find", "panic")
	b.Enter("#find")
	says("1 line.")
	assert.Contains(t, browser.Get(b, chromedp.Location()), "find=panic", "the server has searched")
}
