package app_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/sizing"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// briskly is right-sizing for those who cannot wait.
var briskly = sizing.Timing{Every: time.Second, Save: time.Second, Settle: time.Hour, MinSamples: 2}

// eventuallyMeasured has the patience that metrics-server needs.
func eventuallyMeasured(t *testing.T, what string, condition func() bool) {
	t.Helper()
	within(t, 2*time.Minute, what, condition)
}

func podsOf(t *testing.T, env *kubetest.Env, k runnerapi.Key) []corev1.Pod {
	t.Helper()
	var list corev1.PodList
	require.NoError(t, env.Client.List(t.Context(), &list, client.InNamespace(k.Namespace), client.MatchingLabels{"pipeops.io/app": k.Name}))
	return list.Items
}

func eventOf(t *testing.T, env *kubetest.Env, k runnerapi.Key, reason string) string {
	t.Helper()
	var list corev1.EventList
	require.NoError(t, env.Client.List(t.Context(), &list, client.InNamespace(k.Namespace)))
	for _, e := range list.Items {
		if e.InvolvedObject.Kind == "App" && e.InvolvedObject.Name == k.Name && e.Reason == reason {
			return e.Message
		}
	}
	return ""
}

func TestSizing_AppliesRecommendation(t *testing.T) {
	suite.Release(t, "right-sizing by what a metrics-server measures")
	t.Parallel()
	env := kubetest.Full(t)
	image := helloImage(t, env)
	require.NoError(t, env.Cluster.WaitMetrics(t.Context()))
	ns := ownNamespace(t, env)
	e, _ := asInTheAgent(t, env, ns, briskly)
	big := runnerapi.Resources{Requests: runnerapi.ResourceAmounts{CPU: "100m", Memory: "100Mi"}}
	apply := &runnerapi.RightSizing{Mode: runnerapi.SizingApply, Memory: runnerapi.MemoryBounds{Min: "48Mi"}}
	plain, told, fitted, firm := key(ns, "plain"), key(ns, "told"), key(ns, "fitted"), key(ns, "firm")
	deploy(t, e, plain, runnerapi.AppSpec{Image: image, Resources: big})
	deploy(t, e, told, runnerapi.AppSpec{Image: image, Resources: big, RightSizing: &runnerapi.RightSizing{Mode: runnerapi.SizingRecommend}})
	deploy(t, e, fitted, runnerapi.AppSpec{Image: image, Resources: big, RightSizing: apply})
	guaranteed := runnerapi.Resources{Requests: big.Requests, Limits: big.Requests}
	deploy(t, e, firm, runnerapi.AppSpec{Image: image, Resources: guaranteed, RightSizing: apply})
	for _, k := range []runnerapi.Key{plain, told, fitted, firm} {
		require.Equal(t, runnerapi.PhaseHealthy, settled(t, e, k, 1).Status.Phase)
	}
	pod := podsOf(t, env, fitted)[0]

	var m runnerapi.AppMetrics
	metrics := func(k runnerapi.Key) bool {
		var err error
		if m, err = e.Metrics(t.Context(), k); code(err) == runnerapi.CodeUnavailable {
			return false // metrics-server is slow to answer on a busy machine
		}
		require.NoError(t, err)
		return len(m.Pods) == 1
	}
	eventuallyMeasured(t, "figures of an App", func() bool { return metrics(plain) && m.Containers[0].Memory.Highest > 0 })
	assert.Equal(t, "plain", m.Containers[0].Name)
	assert.EqualValues(t, 100, *m.Containers[0].CPU.Request)
	assert.EqualValues(t, 100<<20, *m.Containers[0].Memory.Request)
	assert.Nil(t, m.Containers[0].Memory.Limit)
	assert.Equal(t, runnerapi.SizingOff, m.Sizing.Mode)
	require.Len(t, m.Sizing.Containers, 1, "what would fit is told of any App, from the first measurement on")
	first := m.Sizing.Containers[0].Samples
	assert.Positive(t, first)
	assert.Positive(t, m.Sizing.Containers[0].Memory.Peak)

	eventuallyMeasured(t, "a recommendation", func() bool {
		return metrics(told) && len(m.Sizing.Containers) == 1 && m.Sizing.Containers[0].Samples >= briskly.MinSamples
	})
	r := m.Sizing.Containers[0]
	assert.EqualValues(t, 10, r.CPU.Request, "the floor: it does nothing")
	assert.EqualValues(t, 32<<20, r.Memory.Request)
	assert.Positive(t, r.Memory.Peak)
	assert.Equal(t, "peak", r.Memory.Basis)
	assert.EqualValues(t, 100<<20, podsOf(t, env, told)[0].Spec.Containers[0].Resources.Requests.Memory().Value(), "told, not applied")

	t.Run("in place", func(t *testing.T) {
		eventuallyMeasured(t, "the pod that runs is resized", func() bool {
			pods := podsOf(t, env, fitted)
			return len(pods) == 1 && pods[0].Spec.Containers[0].Resources.Requests.Memory().String() == "48Mi"
		})
		eventuallyMeasured(t, "it is told", func() bool { return metrics(fitted) && m.Sizing.AppliedBy == "Resize" })
		now := podsOf(t, env, fitted)[0]
		assert.Equal(t, pod.UID, now.UID, "the same pod")
		assert.Zero(t, now.Status.ContainerStatuses[0].RestartCount, "the same process")
		assert.Equal(t, "10m", now.Spec.Containers[0].Resources.Requests.Cpu().String())
		assert.Equal(t, "min", m.Sizing.Containers[0].Memory.Bound)
		assert.EqualValues(t, 1, get(t, env, fitted, &appsv1.Deployment{}).Generation, "no rollout")
		message := eventOf(t, env, fitted, "RightSized")
		assert.Contains(t, message, "in place, on 1 pods")
		assert.Contains(t, message, "memory 100Mi -> 48Mi")
		t.Log(message)
	})
	t.Run("by a rollout", func(t *testing.T) {
		eventuallyMeasured(t, "the template is changed", func() bool {
			d := get(t, env, firm, &appsv1.Deployment{})
			return d.Spec.Template.Spec.Containers[0].Resources.Requests.Memory().String() == "48Mi"
		})
		assert.Equal(t, runnerapi.PhaseHealthy, settled(t, e, firm, 1).Status.Phase)
		eventuallyMeasured(t, "it is told", func() bool { return metrics(firm) && m.Sizing.AppliedBy == "Rollout" })
		assert.Contains(t, eventOf(t, env, firm, "RightSized"), "by a rollout")
	})
	t.Run("what was measured outlives the agent", func(t *testing.T) {
		var a *v1alpha1.App
		eventuallyMeasured(t, "it is written down", func() bool {
			a = get(t, env, told, &v1alpha1.App{})
			return a.Status.Sizing != nil && len(a.Status.Sizing.Containers) == 1
		})
		other, _ := asInTheAgent(t, env, ns, sizing.Timing{Every: time.Hour})
		m, err := other.Metrics(t.Context(), told)
		require.NoError(t, err)
		require.Len(t, m.Sizing.Containers, 1)
		assert.Positive(t, m.Sizing.Containers[0].Samples)
		assert.Less(t, len(a.Status.Sizing.Containers[0].History), 1000)
	})
	t.Run("measured while nobody asks", func(t *testing.T) {
		// A question is a measurement, too: so others are asked, in between.
		asked, seen := int64(0), r.Samples
		eventuallyMeasured(t, "it was measured more often than it was asked", func() bool {
			if !metrics(told) || m.Sizing.Containers[0].Samples < seen+3 {
				return false
			}
			seen = m.Sizing.Containers[0].Samples
			asked++
			return metrics(plain) && m.Sizing.Containers[0].Samples > first+asked
		})
		assert.Nil(t, get(t, env, plain, &v1alpha1.App{}).Status.Sizing, "nothing of it is written down")
	})
	t.Run("off", func(t *testing.T) {
		deploy(t, e, fitted, runnerapi.AppSpec{Image: image, Resources: big})
		eventuallyMeasured(t, "it has its own requests again, and nothing is kept", func() bool {
			pods := podsOf(t, env, fitted)
			return len(pods) == 1 && pods[0].Spec.Containers[0].Resources.Requests.Memory().String() == "100Mi" &&
				get(t, env, fitted, &v1alpha1.App{}).Status.Sizing == nil
		})
		assert.Equal(t, pod.UID, podsOf(t, env, fitted)[0].UID)
		assert.NotEmpty(t, eventOf(t, env, fitted, "RightSizingOff"))
	})
}

func TestMetrics_WithoutMetricsServer(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := asInTheAgent(t, env, ns, sizing.Timing{})
	deploy(t, e, key(ns, "web"), runnerapi.AppSpec{Image: "example.com/web:1"})
	eventually(t, "a clear answer", func() bool {
		_, err := e.Metrics(t.Context(), key(ns, "web"))
		return code(err) == runnerapi.CodeNotSupported && strings.Contains(err.Error(), "install metrics-server")
	})
	_, err := e.Metrics(t.Context(), key(ns, "nowhere"))
	assert.Equal(t, runnerapi.CodeNotFound, code(err))
}

// TestAutoscaling_FollowsLoad has an App use more CPU than it aims at: the
// autoscaler that was made from it adds a pod, by metrics-server's figures, and
// the agent lets it.
func TestAutoscaling_FollowsLoad(t *testing.T) {
	suite.Release(t, "autoscaling by what a metrics-server measures")
	t.Parallel()
	env := kubetest.Full(t)
	image := helloImage(t, env)
	require.NoError(t, env.Cluster.WaitMetrics(t.Context()))
	k := key(ownNamespace(t, env), "busy")
	e, _ := start(t, env, k.Namespace, nil)
	a := deploy(t, e, k, runnerapi.AppSpec{
		Image: image, Args: []string{"-burn-cpu"}, Autoscaling: &runnerapi.Autoscaling{Min: 1, Max: 2, CPUPercent: 50},
		Resources: runnerapi.Resources{Requests: runnerapi.ResourceAmounts{CPU: "20m"}, Limits: runnerapi.ResourceAmounts{CPU: "100m"}},
	})
	defer func() { // it would go on to take CPU from the other tests
		assert.NoError(t, env.Client.Delete(t.Context(), &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}}))
		assert.True(t, polled(podPatience, func() bool { return len(podsOf(t, env, k)) == 0 }), "its pods go")
	}()
	require.Equal(t, runnerapi.PhaseHealthy, settled(t, e, k, a.Generation).Status.Phase)
	assert.EqualValues(t, 1, *get(t, env, k, &appsv1.Deployment{}).Spec.Replicas, "it starts with the fewest")

	began := time.Now()
	eventuallyMeasured(t, "the autoscaler adds a pod, and it runs", func() bool {
		a, err := e.Get(t.Context(), k)
		return err == nil && a.Status.ReadyReplicas == 2 && a.Status.DesiredReplicas == 2 && a.Status.Phase == runnerapi.PhaseHealthy
	})
	t.Logf("two pods after %s", time.Since(began).Round(time.Second))
	assert.EqualValues(t, 2, *get(t, env, k, &appsv1.Deployment{}).Spec.Replicas)
	assert.Equal(t, a.Generation, get(t, env, k, &v1alpha1.App{}).Generation, "the spec stays what was written")
}
