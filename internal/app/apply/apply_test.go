package apply

import (
	"errors"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

var now = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

// newApplier returns an Applier over a cluster with these objects, and a client of that cluster.
func newApplier(t *testing.T, objects ...client.Object) (*Applier, client.Client) {
	t.Helper()
	scheme, err := appcache.NewScheme()
	require.NoError(t, err)
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.App{}).WithObjects(objects...).Build()
	clock := func() time.Time { return now }
	return New(appcache.New(c, c, objectmeta.Scope{}, zerolog.Nop(), clock), zerolog.Nop(), clock), c
}

// web returns an App whose newest spec was looked at before.
func web(change ...func(*v1alpha1.App)) *v1alpha1.App {
	a := &v1alpha1.App{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "app-1", Generation: 1},
		Spec:       runnerapi.AppSpec{Image: "example.com/web:1", Replicas: new(int32(1)), Ports: []runnerapi.Port{{Port: 8080, Service: 80}}},
	}
	a.Status.ObservedGeneration = 1
	for _, f := range change {
		f(a)
	}
	return a
}

func autoscaled(a *v1alpha1.App) {
	a.Spec.Autoscaling = &runnerapi.Autoscaling{Min: 1, Max: 5}
}

func meta(labels, notes map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "theirs", Labels: labels, Annotations: notes}
}

func ensure(t *testing.T, p *Applier, a *v1alpha1.App) (*appsv1.Deployment, error) {
	t.Helper()
	d, ok := workload.Unpatched(a)[0].(*appsv1.Deployment)
	require.True(t, ok)
	return d, p.Ensure(t.Context(), a, d)
}

func drift(t *testing.T, c client.Client) *runnerapi.Drift {
	t.Helper()
	a := &v1alpha1.App{}
	require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, a))
	return a.Status.Drift
}

func driftEvents(t *testing.T, c client.Client) int {
	t.Helper()
	var list corev1.EventList
	require.NoError(t, c.List(t.Context(), &list))
	return len(list.Items)
}

func TestEnsure_CorrectsDrift(t *testing.T) {
	a := web()
	p, c := newApplier(t, a)
	d, err := ensure(t, p, a)
	require.NoError(t, err)
	assert.Nil(t, drift(t, c), "the first time nothing was changed")

	same, err := ensure(t, p, a)
	require.NoError(t, err)
	assert.Equal(t, d.ResourceVersion, same.ResourceVersion, "what is as desired is not written")

	d.Spec.Template.Spec.Containers[0].Image = "example.com/evil:1"
	d.Annotations["owner"] = "somebody"
	require.NoError(t, c.Update(t.Context(), d))
	d, err = ensure(t, p, a)
	require.NoError(t, err)
	assert.Equal(t, "example.com/web:1", d.Spec.Template.Spec.Containers[0].Image)
	assert.Equal(t, "somebody", d.Annotations["owner"], "what others add is theirs")
	got := drift(t, c)
	assert.Equal(t, &runnerapi.Drift{
		Corrections: 1, LastAt: got.LastAt, Object: "deployment/web", Fields: []string{"spec.template.spec.containers[web].image"},
	}, got)
	assert.Equal(t, 1, driftEvents(t, c))

	require.NoError(t, c.Delete(t.Context(), d))
	_, err = ensure(t, p, a)
	require.NoError(t, err)
	assert.EqualValues(t, 1, drift(t, c).Corrections, "the status does not say that the agent had made it")
	require.NoError(t, c.Delete(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}))
	a.Status.Made = []string{"deployment/web"}
	_, err = ensure(t, p, a)
	require.NoError(t, err)
	got = drift(t, c)
	assert.True(t, got.Deleted)
	assert.EqualValues(t, 2, got.Corrections)
	assert.Equal(t, 1, driftEvents(t, c), "one event a minute")
}

func TestEnsure_AppliesNewSpec(t *testing.T) {
	a := web()
	p, c := newApplier(t, a)
	_, err := ensure(t, p, a)
	require.NoError(t, err)
	a.Spec.Image = "example.com/web:2"
	d, err := ensure(t, p, a)
	require.NoError(t, err)
	assert.Equal(t, "example.com/web:2", d.Spec.Template.Spec.Containers[0].Image)
	assert.Nil(t, drift(t, c), "the agent's own change is not drift")
	stale := d.DeepCopy()
	stale.ResourceVersion = "1"
	again := workload.Unpatched(a)[0]
	require.NoError(t, Seal(a, again))
	assert.True(t, apierrors.IsConflict(p.ApplyOver(t.Context(), a, again, stale)), "a request that was in progress for long")

	a.Spec.Image, a.Generation = "example.com/web:0", 0
	_, err = ensure(t, p, a)
	assert.True(t, apierrors.IsConflict(err), "a former leader does not go back to an older spec: %v", err)
}

func TestEnsure_KeepsAutoscaledReplicas(t *testing.T) {
	a := web(autoscaled)
	p, c := newApplier(t, a)
	d, err := ensure(t, p, a)
	require.NoError(t, err)
	d.Spec.Replicas = new(int32(4))
	require.NoError(t, c.Update(t.Context(), d))
	d, err = ensure(t, p, a)
	require.NoError(t, err)
	assert.EqualValues(t, 4, *d.Spec.Replicas)
	assert.Nil(t, drift(t, c))
}

func TestEnsure_RefusesForeign(t *testing.T) {
	foreign := &appsv1.Deployment{ObjectMeta: meta(nil, nil)}
	a := web()
	p, c := newApplier(t, a, foreign)
	_, err := ensure(t, p, a)
	other, ok := errors.AsType[*ForeignError](err)
	require.True(t, ok, err)
	assert.Equal(t, `Deployment "web" in namespace shop already exists and does not belong to this App`, other.Error())
	assert.ErrorAs(t, p.RefuseOrAdopt(t.Context(), a, runnerapi.WriteOptions{}), &other)
	version := foreign.ResourceVersion
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign))
	assert.Equal(t, version, foreign.ResourceVersion)
}

func TestForeign_NamesOwner(t *testing.T) {
	controller := meta(nil, nil)
	controller.OwnerReferences = []metav1.OwnerReference{{Kind: "Database", Name: "main", Controller: new(true)}}
	for name, c := range map[string]struct {
		of   metav1.ObjectMeta
		want string
	}{
		"nobody":           {meta(nil, nil), ""},
		"controller":       {controller, "Database main"},
		"Helm":             {meta(nil, map[string]string{"meta.helm.sh/release-name": "shop"}), "Helm release shop"},
		"set":              {meta(nil, map[string]string{objectmeta.SetOf: "base"}), "set base"},
		"Argo CD, label":   {meta(map[string]string{"argocd.argoproj.io/instance": "shop"}, nil), "Argo CD application shop"},
		"Argo CD, tracked": {meta(nil, map[string]string{"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:shop/web"}), "Argo CD application shop"},
		"Kustomization":    {meta(map[string]string{"kustomize.toolkit.fluxcd.io/name": "apps"}, nil), "Flux Kustomization apps"},
		"HelmRelease":      {meta(map[string]string{"helm.toolkit.fluxcd.io/name": "apps"}, nil), "Flux HelmRelease apps"},
		"another App":      {meta(objectmeta.AppLabels("other"), nil), "App other"},
	} {
		t.Run(name, func(t *testing.T) {
			err := foreignTo("Service", &c.of)
			if c.want == "" {
				assert.ErrorContains(t, err, "does not belong to this App")
				assert.Contains(t, err.Fix(), "--adopt")
				return
			}
			assert.ErrorContains(t, err, "belongs to "+c.want)
			assert.Equal(t, "give the App another name, or have "+c.want+" give the Service up", err.Fix())
		})
	}
	former := meta(nil, nil)
	former.OwnerReferences = []metav1.OwnerReference{{APIVersion: "pipeops.io/v1alpha1", Kind: "App", Name: "web", UID: "1", Controller: new(true)}}
	again := web()
	again.UID = "2"
	assert.True(t, problem.Is(Foreign(again, "Service", &former), problem.Busy), "it goes by itself")
	former.OwnerReferences[0].APIVersion = "kappctrl.k14s.io/v1alpha1"
	assert.ErrorContains(t, Foreign(again, "Service", &former), "belongs to App web", "an App of another API")
	assert.NotContains(t, foreignTo("Job", &metav1.ObjectMeta{}).Fix(), "--adopt", "a Job has run")
}

func TestAdopt_RefusesIncompatible(t *testing.T) {
	selector := func(labels map[string]string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: labels}
	}
	deployment := func(s *metav1.LabelSelector) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: meta(nil, nil), Spec: appsv1.DeploymentSpec{Selector: s}}
	}
	service := func(kind corev1.ServiceType, address string, selector map[string]string) *corev1.Service {
		return &corev1.Service{ObjectMeta: meta(nil, nil), Spec: corev1.ServiceSpec{Type: kind, ClusterIP: address, Selector: selector}}
	}
	going := deployment(nil)
	going.DeletionTimestamp, going.Finalizers = new(metav1.NewTime(now)), []string{"example.com/hold"}
	job := func(a *v1alpha1.App) { a.Spec.Type, a.Spec.Ports = runnerapi.TypeJob, nil }
	for name, c := range map[string]struct {
		app  *v1alpha1.App
		have client.Object
		want string
	}{
		"of another":            {web(), &appsv1.Deployment{ObjectMeta: meta(objectmeta.AppLabels("other"), nil)}, "belongs to App other"},
		"being deleted":         {web(), going, "it is being deleted"},
		"Job":                   {web(job), &batchv1.Job{ObjectMeta: meta(nil, nil)}, "a Job has run"},
		"expressions":           {web(), deployment(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a"}}}), "matchExpressions"},
		"the agent's label":     {web(), deployment(selector(map[string]string{objectmeta.App: "api"})), "the agent sets that label to web"},
		"label of the spec":     {web(func(a *v1alpha1.App) { a.Spec.PodLabels = map[string]string{"tier": "1"} }), deployment(selector(map[string]string{"tier": "2"})), "podLabels says 1"},
		"NodePort":              {web(), service(corev1.ServiceTypeNodePort, "10.0.0.1", map[string]string{"app": "web"}), "of type ClusterIP"},
		"headless":              {web(), service(corev1.ServiceTypeClusterIP, corev1.ClusterIPNone, map[string]string{"app": "web"}), "with an address"},
		"without selector":      {web(), service(corev1.ServiceTypeClusterIP, "10.0.0.1", nil), "a selector"},
		"selects other pods":    {web(), service(corev1.ServiceTypeClusterIP, "10.0.0.1", map[string]string{"app": "web"}), "it selects pods by app=web"},
		"Service of its labels": {web(), service(corev1.ServiceTypeClusterIP, "10.0.0.1", objectmeta.AppLabels("web")), ""},
		"any Deployment":        {web(), deployment(selector(map[string]string{"app": "web"})), ""},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := newApplier(t, c.have)
			err := p.RefuseOrAdopt(t.Context(), c.app, runnerapi.WriteOptions{Adopt: true})
			if c.want != "" {
				assert.ErrorContains(t, err, c.want)
				assert.Empty(t, workload.AdoptionOf(c.app).Objects)
				return
			}
			require.NoError(t, err)
			assert.Len(t, workload.AdoptionOf(c.app).Objects, 1)
		})
	}
}

func TestAdopt_TakesOverDeployment(t *testing.T) {
	labels := map[string]string{"app": "web"}
	theirs := &appsv1.Deployment{
		ObjectMeta: meta(labels, map[string]string{lastApplied: "{}", "note": "kept"}),
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Paused: true,
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
		},
	}
	a := web(func(a *v1alpha1.App) { a.Spec.Ports = nil })
	p, _ := newApplier(t, a, theirs)
	require.NoError(t, p.RefuseOrAdopt(t.Context(), a, runnerapi.WriteOptions{Adopt: true}))
	d, err := ensure(t, p, a)
	require.NoError(t, err)
	assert.EqualValues(t, "theirs", d.UID)
	assert.True(t, metav1.IsControlledBy(d, a))
	assert.Equal(t, "web", d.Spec.Selector.MatchLabels["app"], "it cannot change")
	assert.Equal(t, "web", d.Spec.Template.Labels["app"])
	assert.False(t, d.Spec.Paused, "what others had set is gone")
	assert.Equal(t, "kept", d.Annotations["note"])
	assert.NotContains(t, d.Annotations, lastApplied)

	again := theirs.DeepCopy()
	again.ResourceVersion, again.Annotations = "", map[string]string{"meta.helm.sh/release-name": "shop"}
	p, _ = newApplier(t, a, again)
	_, err = ensure(t, p, a)
	assert.ErrorContains(t, err, "belongs to Helm release shop", "it has had another owner since it was noted")
}

func TestBecoming_KeepsServiceAndIngressFields(t *testing.T) {
	address := &corev1.Service{ObjectMeta: meta(nil, nil), Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1"}}
	patch, err := becoming(workload.Unpatched(web())[1], address)
	require.NoError(t, err)
	raw, err := patch.Data(address)
	require.NoError(t, err)
	assert.Contains(t, string(raw), `"clusterIP":"10.0.0.1"`)
	assert.Contains(t, string(raw), `"port":80`)

	class := &networkingv1.Ingress{ObjectMeta: meta(nil, nil), Spec: networkingv1.IngressSpec{IngressClassName: new("nginx")}}
	patch, err = becoming(&networkingv1.Ingress{ObjectMeta: meta(nil, nil)}, class)
	require.NoError(t, err)
	raw, err = patch.Data(class)
	require.NoError(t, err)
	assert.Contains(t, string(raw), `"ingressClassName":"nginx"`)
}

func TestDiffering_NamesFields(t *testing.T) {
	deployment := func(change func(*appsv1.Deployment)) *appsv1.Deployment {
		d, _ := workload.Unpatched(web(func(a *v1alpha1.App) {
			a.Spec.Env = []runnerapi.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}
		}))[0].(*appsv1.Deployment)
		change(d)
		return d
	}
	container := func(d *appsv1.Deployment) *corev1.Container { return &d.Spec.Template.Spec.Containers[0] }
	for name, c := range map[string]struct {
		change func(*appsv1.Deployment)
		want   []string
	}{
		"nothing":        {func(*appsv1.Deployment) {}, nil},
		"added":          {func(d *appsv1.Deployment) { container(d).Env = append(container(d).Env, corev1.EnvVar{Name: "C"}) }, nil},
		"value":          {func(d *appsv1.Deployment) { container(d).Env[1].Value = "secret" }, []string{"spec.template.spec.containers[web].env[B].value"}},
		"order of names": {func(d *appsv1.Deployment) { e := container(d).Env; e[0], e[1] = e[1], e[0] }, nil},
		"label":          {func(d *appsv1.Deployment) { delete(d.Labels, objectmeta.App) }, []string{"metadata.labels." + objectmeta.App}},
		"port":           {func(d *appsv1.Deployment) { container(d).Ports = nil }, []string{"spec.template.spec.containers[web].ports[0].containerPort"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := differing(deployment(func(*appsv1.Deployment) {}), deployment(c.change))
			if name == "port" {
				assert.Subset(t, got, c.want)
				return
			}
			assert.Equal(t, c.want, got)
			assert.Equal(t, len(c.want) > 0, drifted(deployment(func(*appsv1.Deployment) {}), deployment(c.change)))
		})
	}
	many := differing(deployment(func(*appsv1.Deployment) {}), &appsv1.Deployment{})
	assert.Len(t, many, maxFields+1, "the list is bounded")
	assert.Equal(t, "…", many[maxFields])
}

func TestCurrent_RefusesOutdatedApp(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.App)
		ok     bool
	}{
		"same":      {func(*v1alpha1.App) {}, true},
		"label":     {func(a *v1alpha1.App) { a.Labels = map[string]string{"a": "b"} }, true},
		"spec":      {func(a *v1alpha1.App) { a.Generation = 2 }, false},
		"recreated": {func(a *v1alpha1.App) { a.UID = "app-2" }, false},
		"run ended": {func(a *v1alpha1.App) { a.Status.Finished = "key" }, false},
		"restarted": {func(a *v1alpha1.App) { a.Annotations = map[string]string{objectmeta.RestartedAt: "now"} }, false},
		"content":   {func(a *v1alpha1.App) { a.Annotations = map[string]string{objectmeta.Contents: "digest"} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := newApplier(t, web(c.change))
			err := p.Current(t.Context(), web())
			assert.Equal(t, c.ok, err == nil, err)
			assert.Equal(t, !c.ok, apierrors.IsConflict(err))
		})
	}
}

func TestNoteDrift_CountsAfterConflict(t *testing.T) {
	a := web()
	p, c := newApplier(t, a)
	stale := a.DeepCopy()
	stale.ResourceVersion = "1"
	require.NoError(t, p.NoteDrift(t.Context(), a, runnerapi.Drift{Object: "service/web"}))
	require.NoError(t, p.NoteDrift(t.Context(), stale, runnerapi.Drift{Object: "deployment/web"}))
	assert.EqualValues(t, 2, drift(t, c).Corrections)
	assert.Nil(t, stale.Status.Drift, "the reconciler starts again")
	require.NoError(t, c.Delete(t.Context(), web()))
	assert.NoError(t, p.NoteDrift(t.Context(), a, runnerapi.Drift{}), "the App is gone")
}

func TestDryRun_CreatesNoJob(t *testing.T) {
	a := web(func(a *v1alpha1.App) {
		a.UID, a.Spec.Type, a.Spec.Ports, a.Spec.Replicas = "", runnerapi.TypeJob, nil, nil
	})
	p, c := newApplier(t, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}})
	require.NoError(t, p.DryRun(t.Context(), a), "it is checked under another name: a Job cannot be changed")
	var jobs batchv1.JobList
	require.NoError(t, c.List(t.Context(), &jobs))
	assert.Len(t, jobs.Items, 1)
}
