package app_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apitypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

var adopting = runnerapi.WriteOptions{Caller: byTest.Caller, Adopt: true}

// theirs is a Deployment as somebody makes one with kubectl.
func theirs(k runnerapi.Key, image string) *appsv1.Deployment {
	labels := map[string]string{"app": k.Name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name, Labels: map[string]string{"team": "shop"}},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "theirs", Image: image, Env: []corev1.EnvVar{{Name: "OLD", Value: "1"}},
				ReadinessProbe: &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(8080)}}},
			}}}},
		},
	}
}

func theirService(k runnerapi.Key, change ...func(*corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": k.Name}, Ports: []corev1.ServicePort{{Port: 8080, TargetPort: intstr.FromInt32(8080)}},
	}}
	for _, c := range change {
		c(&s.Spec)
	}
	return s
}

// TestAdopt_Deployment adopts one that serves. Its pods are replaced one by one, since they lack
// the agent's labels, and fields that the App does not have are removed.
func TestAdopt_Deployment(t *testing.T) {
	suite.Release(t, "a Deployment becomes an App on real nodes")
	t.Parallel()
	env, e, k := onNodes(t, "web")
	image := helloImage(t, env)
	was, service := theirs(k, image), theirService(k)
	for _, o := range []client.Object{was, service} {
		require.NoError(t, env.Client.Create(t.Context(), o, client.FieldOwner("kubectl-create")))
	}
	available := func() int32 { return get(t, env, k, &appsv1.Deployment{}).Status.AvailableReplicas }
	within(t, podPatience, "it serves", func() bool { return available() == 1 })

	spec := runnerapi.AppSpec{Image: image, Ports: []runnerapi.Port{{Port: 8080}}, Probes: ready(8080)}
	_, err := e.Deploy(t.Context(), k, spec, byTest)
	p := &problem.Error{}
	require.ErrorAs(t, err, &p)
	assert.Contains(t, p.Detail, `Deployment "web" in namespace `+k.Namespace)
	assert.Contains(t, p.Fix, "--adopt")

	dry := adopting
	dry.DryRun = true
	_, err = e.Deploy(t.Context(), k, spec, dry)
	require.NoError(t, err)
	assert.Empty(t, get(t, env, k, &appsv1.Deployment{}).OwnerReferences, "a dry run changes nothing")

	_, err = e.Deploy(t.Context(), k, spec, adopting)
	require.NoError(t, err)
	within(t, podPatience, "the App is healthy", func() bool {
		assert.Positive(t, available(), "it serves all the time")
		a, err := e.Get(t.Context(), k)
		return err == nil && a.Status.Phase == runnerapi.PhaseHealthy
	})
	now := get(t, env, k, &appsv1.Deployment{})
	assert.Equal(t, was.UID, now.UID)
	assert.Equal(t, was.Spec.Selector, now.Spec.Selector)
	assert.Equal(t, "shop", now.Labels["team"], "labels of others stay")
	require.Len(t, now.Spec.Template.Spec.Containers, 1)
	assert.NotEqual(t, "theirs", now.Spec.Template.Spec.Containers[0].Name)
	assert.NotContains(t, now.Spec.Template.Spec.Containers[0].Env, corev1.EnvVar{Name: "OLD", Value: "1"})
	s := get(t, env, k, &corev1.Service{})
	assert.Equal(t, service.UID, s.UID)
	assert.Equal(t, service.Spec.ClusterIP, s.Spec.ClusterIP)
	assert.Equal(t, service.Spec.Selector, s.Spec.Selector, "pods of before were reached until the end")
	assert.NotEmpty(t, s.OwnerReferences)

	meddled := client.RawPatch(apitypes.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/progressDeadlineSeconds","value":77}]`))
	require.NoError(t, env.Client.Patch(t.Context(), now, meddled))
	eventually(t, "drift is put back", func() bool {
		return *get(t, env, k, &appsv1.Deployment{}).Spec.ProgressDeadlineSeconds != 77
	})
	require.NoError(t, e.Delete(t.Context(), k, byTest))
	within(t, podPatience, "the Deployment goes with the App", func() bool {
		return !exists(t, env, k, &appsv1.Deployment{}) && !exists(t, env, k, &corev1.Service{})
	})
}

// TestAdopt_KeepsPods adopts a Deployment that an App left behind.
func TestAdopt_KeepsPods(t *testing.T) {
	t.Parallel()
	env := kubetest.Full(t)
	ns := ownNamespace(t, env)
	e, stop := start(t, env, ns, nil)
	k := key(ns, "kept")
	spec := runnerapi.AppSpec{Image: helloImage(t, env), Ports: []runnerapi.Port{{Port: 8080}}, Probes: ready(8080)}
	deploy(t, e, k, spec)
	require.Equal(t, runnerapi.PhaseHealthy, settled(t, e, k, 1).Status.Phase)
	stop()
	for _, o := range []client.Object{get(t, env, k, &appsv1.Deployment{}), get(t, env, k, &corev1.Service{})} {
		o.SetOwnerReferences(nil)
		o.SetLabels(nil)
		o.SetAnnotations(nil)
		require.NoError(t, env.Client.Update(t.Context(), o))
	}
	a := get(t, env, k, &v1alpha1.App{})
	a.Finalizers = nil
	require.NoError(t, env.Client.Update(t.Context(), a))
	require.NoError(t, env.Client.Delete(t.Context(), a))
	pods := func() (ids []apitypes.UID) {
		var list corev1.PodList
		require.NoError(t, env.Client.List(t.Context(), &list, client.InNamespace(ns)))
		for _, pod := range list.Items {
			ids = append(ids, pod.UID)
		}
		return ids
	}
	before := pods()
	require.Len(t, before, 1)

	e, _ = start(t, env, ns, nil)
	adopted, err := e.Deploy(t.Context(), k, spec, adopting)
	require.NoError(t, err)
	assert.Equal(t, runnerapi.PhaseHealthy, settled(t, e, k, adopted.Generation).Status.Phase)
	assert.Equal(t, before, pods())
	assert.NotEmpty(t, get(t, env, k, &appsv1.Deployment{}).OwnerReferences)
}
