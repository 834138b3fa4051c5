package app_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// driftOf is what an App's status says was put back.
func driftOf(t *testing.T, e *app.Engine, k runnerapi.Key) runnerapi.Drift {
	t.Helper()
	a, err := e.Get(t.Context(), k)
	require.NoError(t, err)
	return ptr.Deref(a.Status.Drift, runnerapi.Drift{})
}

// kubectl is somebody else at work.
func kubectl(t *testing.T, env *kubetest.Env, args ...string) {
	t.Helper()
	out, err := env.Cluster.Kubectl(t.Context(), args...)
	require.NoError(t, err, string(out))
}

// TestDrift_Counted lets an agent do all that it does to an App's objects, of
// which nothing is drift, and then somebody else.
func TestDrift_Counted(t *testing.T) {
	suite.Release(t, "drift, until it is counted")
	t.Parallel()
	env := kubetest.Full(t)
	ns := ownNamespace(t, env)
	e, stop := start(t, env, ns, nil)
	k := key(ns, "web")
	spec := runnerapi.AppSpec{Image: helloImage(t, env), Ports: []runnerapi.Port{{Port: 8080}}, Probes: ready(8080)}
	settle := func(a runnerapi.App) {
		t.Helper()
		now := settled(t, e, k, a.Generation)
		require.Equal(t, runnerapi.PhaseHealthy, now.Status.Phase, "%+v", now.Status.Diagnosis)
	}
	settle(deploy(t, e, k, spec))
	spec.Env, spec.Disruption = []runnerapi.EnvVar{{Name: "TOKEN", Value: "hunter2"}}, &runnerapi.Disruption{MaxUnavailable: "1"}
	settle(deploy(t, e, k, spec))
	spec.Disruption = nil
	settle(deploy(t, e, k, spec))
	spec.Disruption = &runnerapi.Disruption{MaxUnavailable: "1"}
	settle(deploy(t, e, k, spec))
	a, err := e.Scale(t.Context(), k, runnerapi.Scale{Replicas: new(int32(2))}, byTest)
	require.NoError(t, err)
	settle(a)
	a, err = e.Restart(t.Context(), k, byTest)
	require.NoError(t, err)
	settle(a)
	stop()
	e, _ = start(t, env, ns, nil)
	settle(a)
	assert.Zero(t, driftOf(t, e, k).Corrections, "what the agent does itself is none")

	counts := func(n int64, object string, deleted bool, field string) {
		t.Helper()
		within(t, podPatience, strconv.FormatInt(n, 10)+": "+object, func() bool { return driftOf(t, e, k).Corrections >= n })
		d := driftOf(t, e, k)
		assert.Equal(t, n, d.Corrections)
		assert.Equal(t, object, d.Object)
		assert.Equal(t, deleted, d.Deleted)
		assert.Contains(t, strings.Join(d.Fields, " "), field)
		assert.NotContains(t, d.What(), "hunter")
		assert.False(t, d.LastAt.IsZero())
		settle(a)
	}
	kubectl(t, env, "-n", ns, "scale", "deployment", "web", "--replicas=5")
	counts(1, "deployment/web", false, "spec.replicas")
	kubectl(t, env, "-n", ns, "set", "env", "deployment/web", "TOKEN=hunter3")
	counts(2, "deployment/web", false, "spec.template.spec.containers[web].env[TOKEN].value")
	kubectl(t, env, "-n", ns, "delete", "service", "web")
	counts(3, "service/web", true, "")
	kubectl(t, env, "-n", ns, "label", "service", "web", "pipeops.io/app-", "app.kubernetes.io/managed-by-")
	counts(4, "service/web", false, "metadata.labels.pipeops.io/app")
	kubectl(t, env, "-n", ns, "delete", "deployment", "web")
	counts(5, "deployment/web", true, "")
	kubectl(t, env, "-n", ns, "annotate", "deployment", "web", "note=mine")
	kubectl(t, env, "-n", ns, "rollout", "restart", "deployment/web")
	kubectl(t, env, "-n", ns, "patch", "deployment", "web", "-p", `{"spec":{"minReadySeconds":3}}`) // the agent says none
	kubectl(t, env, "-n", ns, "scale", "apps.pipeops.io/web", "--replicas=1")
	eventually(t, "the App is scaled", func() bool { return *get(t, env, k, &appsv1.Deployment{}).Spec.Replicas == 1 })
	assert.EqualValues(t, 5, driftOf(t, e, k).Corrections, "what others add beside is theirs, and an App may be changed by anybody")

	var events corev1.EventList
	require.NoError(t, env.Client.List(t.Context(), &events, client.InNamespace(ns), client.MatchingFields{"reason": "DriftCorrected"}))
	require.NotEmpty(t, events.Items, "kubectl describe tells of it")
	assert.Equal(t, v1alpha1.Kind, events.Items[0].InvolvedObject.Kind)
	assert.Contains(t, events.Items[0].Message, "deployment/web was changed (spec.replicas)")
	assert.Less(t, len(events.Items), 5, "a quarrel makes no flood of them")
}
