package components_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/internal/components"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// Helm itself only creates the CRDs of a chart.
func TestUpgrade_CRDs(t *testing.T) {
	i := installer(t, kubetest.ControlPlane(t))
	removeDefinition(t, i.Client, vpaDefinition)
	var s components.Settings
	s.Choose([]string{"vpa"}, components.Always)
	t.Cleanup(func() { removeAll(t, i) })
	require.NoError(t, i.Apply(t.Context(), planned(t, i, s)))

	shortNames := func() []string {
		var d struct {
			Spec struct{ Names struct{ ShortNames []string } }
		}
		data, err := i.Client.Discovery().RESTClient().Get().AbsPath(definitionsPath + "/" + vpaDefinition).DoRaw(t.Context())
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &d))
		return d.Spec.Names.ShortNames
	}
	require.Equal(t, []string{"vpa"}, shortNames())
	older := []byte(`{"spec":{"names":{"shortNames":["older"]}}}`)
	require.NoError(t, i.Client.Discovery().RESTClient().Patch(types.MergePatchType).AbsPath(definitionsPath+"/"+vpaDefinition).Body(older).Do(t.Context()).Error())
	require.Equal(t, []string{"older"}, shortNames())

	s.Components["vpa"] = components.Setting{Mode: components.Always, Values: map[string]map[string]any{"vertical-pod-autoscaler": {"podLabels": map[string]any{"a": "b"}}}}
	require.NoError(t, i.Apply(t.Context(), planned(t, i, s)))
	assert.Equal(t, []string{"vpa"}, shortNames())
}

// TestRemove_ThenInstall: the definitions that stayed behind are not reason to leave the component
// out, those of others are.
func TestRemove_ThenInstall(t *testing.T) {
	i := installer(t, kubetest.ControlPlane(t))
	removeDefinition(t, i.Client, vpaDefinition)
	var s components.Settings
	s.Choose([]string{"vpa"}, components.Auto)
	require.NoError(t, i.Apply(t.Context(), planned(t, i, s)))
	t.Cleanup(func() { removeAll(t, i) })
	removeAll(t, i)
	assert.Equal(t, components.Install, actions(planned(t, i, s))["vpa"], reason(planned(t, i, s), "vpa"))

	definition := func(managers string) {
		t.Helper()
		patch := []byte(`{"metadata":{"managedFields":` + managers + `}}`)
		require.NoError(t, i.Client.Discovery().RESTClient().Patch(types.MergePatchType).AbsPath(definitionsPath+"/"+vpaDefinition).Body(patch).Do(t.Context()).Error())
	}
	definition(`[{}]`) // https://kubernetes.io/docs/reference/using-api/server-side-apply/#clearing-managedfields
	assert.Equal(t, components.Skip, actions(planned(t, i, s))["vpa"], "by others")
	removeDefinition(t, i.Client, vpaDefinition)
}

// TestPlan_TrustsNoRunner has Services with the labels of Prometheus: one in a namespace that the
// agent manages.
func TestPlan_TrustsNoRunner(t *testing.T) {
	i := installer(t, kubetest.ControlPlane(t))
	for name, managed := range map[string]map[string]string{"kc-a": {"app.kubernetes.io/managed-by": "pipeops"}, "theirs": nil} {
		_, err := i.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: managed}}, metav1.CreateOptions{})
		require.NoError(t, err)
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "prometheus-server", Labels: map[string]string{"app.kubernetes.io/name": "prometheus"}},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}
		_, err = i.Client.CoreV1().Services(name).Create(t.Context(), service, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			assert.NoError(t, i.Client.CoreV1().Services(name).Delete(context.Background(), service.Name, metav1.DeleteOptions{}))
		})
		cluster, err := components.Look(t.Context(), i.Client)
		require.NoError(t, err)
		assert.Equal(t, managed == nil, slices.Contains(cluster.Services["prometheus"], name+"/prometheus-server"), name)
	}
}

// TestRemove_KeepsVolumes has volumes that a chart lists, and those of its StatefulSets.
func TestRemove_KeepsVolumes(t *testing.T) {
	i := installer(t, kubetest.ControlPlane(t))
	var s components.Settings
	s.Choose([]string{"grafana", "prometheus"}, components.Always)
	t.Cleanup(func() { removeAll(t, i) })
	for range 2 { // the second installation uses the volumes again
		require.NoError(t, i.Apply(t.Context(), planned(t, i, s)))
		removeAll(t, i)
		for component, volume := range map[string]string{"grafana": "grafana", "prometheus": "prometheus-server"} {
			left, err := i.Volumes(t.Context(), component)
			require.NoError(t, err)
			assert.Equal(t, []components.Volume{{Namespace: "monitoring", Name: volume}}, left)
		}
	}
	left, err := i.Volumes(t.Context(), "grafana")
	require.NoError(t, err)
	for _, v := range left {
		require.NoError(t, i.RemoveVolume(t.Context(), v))
		claim, err := i.Client.CoreV1().PersistentVolumeClaims(v.Namespace).Get(context.Background(), v.Name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) { // no controller takes its finalizer away here
			require.NoError(t, err)
			require.NotNil(t, claim.DeletionTimestamp)
			claim.Finalizers = nil
			_, err = i.Client.CoreV1().PersistentVolumeClaims(v.Namespace).Update(t.Context(), claim, metav1.UpdateOptions{})
			require.NoError(t, err)
		}
	}
	left, err = i.Volumes(t.Context(), "grafana")
	require.NoError(t, err)
	assert.Empty(t, left)
	_, err = i.Volumes(t.Context(), "nothing")
	require.Error(t, err)
}
