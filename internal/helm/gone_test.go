package helm_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/health"
	"github.com/pipeops/pipeops-vm-agent/internal/helm"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// heldChart is a chart whose pods have a finalizer, with a hook of the release's end.
const heldChart = `apiVersion: apps/v1
kind: Deployment
metadata: {name: {{ .Release.Name }}}
spec:
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}, finalizers: [example.com/drained]}
    spec:
      terminationGracePeriodSeconds: 1
      securityContext: {runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
      containers:
      - {name: web, image: {{ .Values.image | quote }}, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}
---
apiVersion: v1
kind: Service
metadata: {name: {{ .Release.Name }}, annotations: {helm.sh/hook: post-delete}}
spec: {ports: [{port: 80}]}
`

// freed lets the pods of a test go, at its end as well.
func freed(t *testing.T, env *kubetest.Env, name string) (free func(context.Context)) {
	t.Helper()
	free = func(ctx context.Context) {
		without := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		for _, pod := range podsOf(ctx, t, env, name) {
			assert.NoError(t, client.IgnoreNotFound(env.Client.Patch(ctx, &pod, without)))
		}
	}
	t.Cleanup(func() { free(context.Background()) })
	return free
}

func podsOf(ctx context.Context, t *testing.T, env *kubetest.Env, name string) []corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	assert.NoError(t, env.Client.List(ctx, &pods, client.InNamespace(production), client.MatchingLabels{"app": name}))
	return pods.Items
}

func TestUninstall_WaitsForPods(t *testing.T) {
	suite.Release(t, "a release whose pods do not go in time")
	env := kubetest.Full(t)
	r := start(t, env.Agent, func(o *helm.Options) {
		o.Workloads, o.GoneWait = health.New(env.Agent, app.StabilizationFor(time.Second)), 15*time.Second
	})
	remove(t, env, "leaving")
	image, err := env.Cluster.LoadApp(t.Context(), "hello")
	require.NoError(t, err)
	spec := of(pack(t, map[string]string{"templates/web.yaml": heldChart}), map[string]any{"image": image})
	free := freed(t, env, "leaving")
	good := deploy(t, r, "leaving", spec)
	require.Equal(t, runnerapi.ReleaseDeployed, good.Status, good.Description)
	pods := podsOf(t.Context(), t, env, "leaving")
	require.Len(t, pods, 1)
	waits := "waits for finalizer example.com/drained of pod " + pods[0].Name + " to be removed"

	_, err = r.Delete(t.Context(), key("leaving"), byTest)
	require.NoError(t, err)
	await.Until(t, "the command says what it waits for", func() bool {
		now, err := r.Get(t.Context(), key("leaving"))
		require.NoError(t, err)
		return now.Busy() && strings.Contains(now.Operation.Progress, "Deployment leaving is being deleted; it "+waits)
	})
	now, err := r.Get(t.Context(), key("leaving"))
	require.NoError(t, err)
	assert.Equal(t, runnerapi.ReleaseUninstalling, now.Status)
	assert.Equal(t, runnerapi.ObjectInProgress, now.Objects[0].State)
	assert.Contains(t, now.Objects[0].Message, waits)

	failed := outcome(t, r, "leaving")
	assert.Equal(t, runnerapi.ReleaseFailed, failed.Status, "what is not gone is not uninstalled")
	assert.True(t, strings.HasPrefix(failed.Description, "Deployment leaving did not go within 15s: "+waits), failed.Description)
	_, err = service(t, env, "leaving")
	require.Error(t, err, "a hook of its end waits for the end")
	again, err := r.Deploy(t.Context(), key("leaving"), spec, byTest)
	require.Error(t, err, "%+v", again)
	assert.Contains(t, problemOf(t, err).Detail, "it is being deleted")

	free(t.Context())
	_, err = r.Delete(t.Context(), key("leaving"), byTest)
	require.NoError(t, err)
	await.Until(t, "the release is gone", func() bool {
		_, err := r.Get(t.Context(), key("leaving"))
		return err != nil && problemOf(t, err).Code == problem.NotFound
	})
	assert.Empty(t, podsOf(t.Context(), t, env, "leaving"))
	_, err = service(t, env, "leaving")
	require.NoError(t, err, "the hook of its end ran")
}

// TestUninstall_KeepsReleaseOnStop stops the agent; the next one goes on.
func TestUninstall_KeepsReleaseOnStop(t *testing.T) {
	env := kubetest.ControlPlane(t)
	remove(t, env, "cut")
	r := helm.New(env.Agent, helm.Options{Namespace: kubetest.AgentNamespace, Replica: "agent-1"})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	next := start(t, env.Agent, func(o *helm.Options) { o.Replica = "agent-2" })
	deploy(t, next, "cut", of(guide(t), nil))
	s, err := service(t, env, "cut")
	require.NoError(t, err)
	holds := func(finalizers string) {
		require.NoError(t, env.Client.Patch(t.Context(), s, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":`+finalizers+`}}`))))
	}
	holds(`["example.com/kept"]`)
	t.Cleanup(func() {
		bare := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: production, Name: "cut"}}
		err := env.Client.Patch(context.Background(), bare, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
		assert.NoError(t, client.IgnoreNotFound(err))
	})
	_, err = r.Delete(t.Context(), key("cut"), byTest)
	require.NoError(t, err)
	await.Until(t, "the command says what it waits for", func() bool {
		now, err := next.Get(t.Context(), key("cut"))
		require.NoError(t, err)
		return now.Busy() && strings.Contains(now.Operation.Progress, "its finalizer to be removed: example.com/kept")
	})
	cancel()
	require.NoError(t, await.Receive(t, done, "the end of the agent's releases"))
	kept, err := next.Get(t.Context(), key("cut"))
	require.NoError(t, err)
	assert.Equal(t, runnerapi.ReleaseFailed, kept.Status)
	assert.Contains(t, kept.Description, "the agent stops")

	holds("null")
	_, err = next.Delete(t.Context(), key("cut"), byTest)
	require.NoError(t, err)
	await.Until(t, "the release is gone", func() bool {
		_, err := next.Get(t.Context(), key("cut"))
		return err != nil && problemOf(t, err).Code == problem.NotFound
	})
}
