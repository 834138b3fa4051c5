package app_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// deleting has an App deleted in the background. Its caller goes after a moment: what
// the App waits for is not waited for by a call.
func deleting(t *testing.T, e *app.Engine, k runnerapi.Key) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Delete(ctx, k, byTest) }()
	eventually(t, "it is being deleted", func() bool {
		a, err := e.Get(t.Context(), k)
		return err == nil && a.Status.Phase == runnerapi.PhaseDeleting
	})
	cancel()
	require.NoError(t, await.Receive(t, done, "the end of the call"))
}

// heldBy waits until a deleted App says that it waits for all of these.
func heldBy(t *testing.T, e *app.Engine, k runnerapi.Key, parts ...string) {
	t.Helper()
	var a runnerapi.App
	waits := func() bool {
		var err error
		a, err = e.Get(t.Context(), k)
		return err == nil && a.Status.Phase == runnerapi.PhaseDeleting && contains(a.Status.WaitingFor, parts...)
	}
	if !polled(podPatience, waits) {
		require.Fail(t, "it does not say what holds it", "%s: %q, not %q", a.Status.Phase, a.Status.WaitingFor, parts)
	}
}

func isGone(t *testing.T, e *app.Engine, k runnerapi.Key) {
	t.Helper()
	within(t, podPatience, "it is gone", func() bool {
		_, err := e.Get(t.Context(), k)
		return code(err) == runnerapi.CodeNotFound
	})
}

// onlyPod is the one pod of a namespace, of whichever state.
func onlyPod(t *testing.T, env *kubetest.Env, ns string) *corev1.Pod {
	t.Helper()
	var pods corev1.PodList
	require.NoError(t, env.Client.List(t.Context(), &pods, client.InNamespace(ns)))
	require.Len(t, pods.Items, 1)
	return &pods.Items[0]
}

func TestDelete_WaitsForPods(t *testing.T) {
	t.Parallel()
	env := kubetest.Full(t)
	for name, test := range map[string]struct {
		grace int64
		hold  string   // a patch of its pod before the App is deleted
		says  []string // what the App waits for
		let   func(t *testing.T, pod *corev1.Pod)
	}{
		"finalizer": {
			hold: `{"metadata":{"finalizers":["example.com/drained"]}}`,
			says: []string{"finalizer example.com/drained of pod ", "to be removed"},
			let: func(t *testing.T, pod *corev1.Pod) {
				free := client.RawPatch(apitypes.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
				require.NoError(t, env.Client.Patch(t.Context(), pod, free))
			},
		},
		"grace": {
			grace: 600,
			says:  []string{" to stop on node ", "its grace period of 600 s ends at "},
			let: func(t *testing.T, pod *corev1.Pod) {
				require.NoError(t, env.Client.Delete(t.Context(), pod, client.GracePeriodSeconds(0)))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := key(ownNamespace(t, env), name)
			e, _ := start(t, env, k.Namespace, nil)
			spec := runnerapi.AppSpec{
				Image: helloImage(t, env), Ports: []runnerapi.Port{{Port: 8080}}, Probes: ready(8080), GraceSeconds: new(max(test.grace, 1)),
			}
			if test.grace > 0 {
				spec.Args = []string{"-ignore-term"}
			}
			a := deploy(t, e, k, spec)
			require.Equal(t, runnerapi.PhaseHealthy, settled(t, e, k, a.Generation).Status.Phase)
			pod := onlyPod(t, env, k.Namespace)
			if test.hold != "" {
				require.NoError(t, env.Client.Patch(t.Context(), pod, client.RawPatch(apitypes.MergePatchType, []byte(test.hold))))
			}
			deleting(t, e, k)
			heldBy(t, e, k, append(test.says, pod.Name)...)
			list, err := e.List(t.Context(), k.Namespace)
			require.NoError(t, err)
			require.Len(t, list, 1)
			assert.Equal(t, runnerapi.PhaseDeleting, list[0].Status.Phase)
			assert.Equal(t, runnerapi.OperationPending, deletion(t, e, k).State)
			test.let(t, pod)
			isGone(t, e, k)
			assert.Equal(t, runnerapi.OperationSucceeded, deletion(t, e, k).State)
		})
	}
}

// deletion is what became of the command that deletes an App.
func deletion(t *testing.T, e *app.Engine, k runnerapi.Key) runnerapi.Outcome {
	t.Helper()
	o, err := e.Outcome(t.Context(), backend.Record{Command: "delete-app", Target: k, Done: true})
	require.NoError(t, err)
	return o
}

// TestDelete_WithoutAgent deletes Apps while no agent runs: nothing of them may wait for one.
func TestDelete_WithoutAgent(t *testing.T) {
	t.Parallel()
	env := kubetest.Full(t)
	ns := ownNamespace(t, env)
	e, stop := start(t, env, ns, nil)
	byKubectl, byRunner := key(ns, "by-kubectl"), key(ns, "by-runner")
	for _, k := range []runnerapi.Key{byKubectl, byRunner} {
		a := deploy(t, e, k, runnerapi.AppSpec{
			Image: helloImage(t, env), Ports: []runnerapi.Port{{Port: 8080}}, Probes: ready(8080), GraceSeconds: new(int64(1)),
		})
		require.Equal(t, runnerapi.PhaseHealthy, settled(t, e, k, a.Generation).Status.Phase)
	}
	stop()
	require.NoError(t, env.Client.Delete(t.Context(), get(t, env, byKubectl, &v1alpha1.App{})))
	assert.False(t, exists(t, env, byKubectl, &v1alpha1.App{}), "kubectl waits for nothing")
	foreground := client.PropagationPolicy(metav1.DeletePropagationForeground)
	require.NoError(t, env.Client.Delete(t.Context(), get(t, env, byRunner, &v1alpha1.App{}), foreground))
	for _, k := range []runnerapi.Key{byKubectl, byRunner} {
		within(t, podPatience, "nothing is left of "+k.Name, func() bool {
			var pods corev1.PodList
			require.NoError(t, env.Client.List(t.Context(), &pods, client.InNamespace(ns), client.MatchingLabels(objectmeta.AppLabels(k.Name))))
			return len(pods.Items) == 0 && !exists(t, env, k, &v1alpha1.App{}) && !exists(t, env, k, &appsv1.Deployment{}) &&
				!exists(t, env, k, &corev1.Service{})
		})
	}
}

// TestDeploy_AfterKubectlDelete: what is left of an App that kubectl deleted delays the next one of
// its name, and no more.
func TestDeploy_AfterKubectlDelete(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "again")
	deploy(t, e, k, web())
	eventually(t, "it has its Service", func() bool { return exists(t, env, k, &corev1.Service{}) })
	was := get(t, env, k, &v1alpha1.App{})
	require.NoError(t, env.Client.Delete(t.Context(), was))
	eventually(t, "it is deployed again", func() bool {
		_, err := e.Deploy(t.Context(), k, web(), byTest)
		if err != nil {
			assert.Equal(t, runnerapi.CodeBusy, code(err), "%v", err)
		}
		return err == nil
	})
	is := get(t, env, k, &v1alpha1.App{})
	require.NotEqual(t, was.UID, is.UID)
	eventually(t, "the Service is the new App's", func() bool {
		service := &corev1.Service{}
		return exists(t, env, k, service) && metav1.IsControlledBy(service, is)
	})
}
