package app_test

import (
	"encoding/json"
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
	env := kubetest.Full(t)
	image := helloImage(t, env)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	k := key(ns, "web")
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
	assert.Contains(t, p.Detail, `Deployment "web" in namespace `+ns)
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

// TestAdopt_Refusals tries objects of other owners, and objects that an App cannot be.
func TestAdopt_Refusals(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	noted := func(key, value string) func(client.Object) {
		return func(o client.Object) { o.SetAnnotations(map[string]string{key: value}) }
	}
	labelled := func(key, value string) func(client.Object) {
		return func(o client.Object) { o.SetLabels(map[string]string{key: value}) }
	}
	selecting := func(s metav1.LabelSelector) func(client.Object) {
		return func(o client.Object) {
			d, ok := o.(*appsv1.Deployment)
			require.True(t, ok)
			d.Spec.Selector, d.Spec.Template.Labels = &s, map[string]string{"app": "x", "app.kubernetes.io/managed-by": "Helm"}
		}
	}
	for name, c := range map[string]struct {
		change func(client.Object)
		says   string
	}{
		"controlled": {func(o client.Object) {
			o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Shop", Name: "big", UID: "1", Controller: new(true)}})
		}, "belongs to Shop big"},
		"helm": {noted("meta.helm.sh/release-name", "guide"), "belongs to Helm release guide"},
		"set":  {noted("pipeops.io/set", ns+"/extras"), "belongs to set " + ns + "/extras"},
		"argo": {noted("argocd.argoproj.io/tracking-id", "shop:apps/Deployment:a/b"), "belongs to Argo CD application shop"},
		"flux": {labelled("kustomize.toolkit.fluxcd.io/name", "shop"), "belongs to Flux Kustomization shop"},
		"expressions": {selecting(metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}}),
			"cannot be adopted: its selector has matchExpressions"},
		"selector": {selecting(metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/managed-by": "Helm"}}),
			"its selector wants app.kubernetes.io/managed-by=Helm"},
	} {
		t.Run(name, func(t *testing.T) {
			k := key(ns, name)
			have := theirs(k, "registry.example.com/web:1")
			c.change(have)
			require.NoError(t, env.Client.Create(t.Context(), have))
			_, err := e.Deploy(t.Context(), k, web(), adopting)
			assert.Equal(t, runnerapi.CodeConflict, code(err))
			assert.ErrorContains(t, err, c.says)
			assert.Equal(t, have.ResourceVersion, get(t, env, k, &appsv1.Deployment{}).ResourceVersion)
			assert.False(t, exists(t, env, k, &v1alpha1.App{}))
		})
	}
	for name, c := range map[string]struct {
		change func(*corev1.ServiceSpec)
		says   string
	}{
		"balancer": {func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer }, "an App's Service is of type ClusterIP"},
		"headless": {func(s *corev1.ServiceSpec) { s.ClusterIP = corev1.ClusterIPNone }, "an App's Service is of type ClusterIP"},
		"tier":     {func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"tier": "front"} }, "it selects pods by tier=front"},
	} {
		t.Run(name, func(t *testing.T) {
			k := key(ns, name)
			require.NoError(t, env.Client.Create(t.Context(), theirService(k, c.change)))
			_, err := e.Deploy(t.Context(), k, web(), adopting)
			assert.Equal(t, runnerapi.CodeConflict, code(err))
			assert.ErrorContains(t, err, c.says)
		})
	}

	// One that comes to belong to somebody after it was noted is left alone too.
	k := key(ns, "later")
	have := theirs(k, "registry.example.com/web:1")
	require.NoError(t, env.Client.Create(t.Context(), have))
	have.Annotations = map[string]string{"meta.helm.sh/release-name": "guide"}
	require.NoError(t, env.Client.Update(t.Context(), have))
	note, err := json.Marshal(map[string]any{"objects": map[string]apitypes.UID{"deployment/later": have.UID}})
	require.NoError(t, err)
	a := &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "later", Annotations: map[string]string{"pipeops.io/adopted": string(note)}}, Spec: web()}
	require.NoError(t, env.Client.Create(t.Context(), a))
	eventually(t, "the conflict is in the status", func() bool {
		got, err := e.Get(t.Context(), k)
		return err == nil && got.Status.Diagnosis != nil && got.Status.Diagnosis.Cause == runnerapi.CauseConflict
	})
	assert.Empty(t, get(t, env, k, &appsv1.Deployment{}).OwnerReferences)
}
