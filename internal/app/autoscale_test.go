package app_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

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
