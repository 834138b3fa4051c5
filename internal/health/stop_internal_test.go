package health

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Each pod that ends changes the status of its workload, between the diagnosis and the stop.
func TestStop_SurvivesStatusChanges(t *testing.T) {
	d := &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1", Generation: 1},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
	}
	api := fake.NewClientBuilder().WithObjects(d).WithStatusSubresource(d).Build()
	key := client.ObjectKeyFromObject(d)
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(d.GroupVersionKind())
	require.NoError(t, api.Get(t.Context(), key, live))

	now := &appsv1.Deployment{}
	require.NoError(t, api.Get(t.Context(), key, now))
	now.Status.UnavailableReplicas = 2
	require.NoError(t, api.Status().Update(t.Context(), now))
	require.NotEqual(t, live.GetResourceVersion(), now.ResourceVersion)
	require.NoError(t, hold(t.Context(), api, live, d, "pipeops", &runnerapi.Diagnosis{Cause: runnerapi.CauseAdmissionRefused}))
	require.NoError(t, api.Get(t.Context(), key, now))
	assert.EqualValues(t, 0, *now.Spec.Replicas)

	now.Spec.Replicas, now.Generation = new(int32(3)), 2
	require.NoError(t, api.Update(t.Context(), now))
	err := hold(t.Context(), api, live, d, "pipeops", &runnerapi.Diagnosis{Cause: runnerapi.CauseAdmissionRefused})
	assert.EqualError(t, err, "its spec has changed meanwhile", "another spec is not stopped for the former's fault")
	require.NoError(t, api.Get(t.Context(), key, now))
	assert.EqualValues(t, 3, *now.Spec.Replicas)
}
