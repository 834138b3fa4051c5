package app_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// web is a spec of the caller's own: what is deployed gets the cluster's defaults.
func web() runnerapi.AppSpec {
	return runnerapi.AppSpec{
		Image: "example.com/web:1", Ports: []runnerapi.Port{{Port: 8080, Service: 80}},
		Env: []runnerapi.EnvVar{{Name: "A", Value: "1"}, {Name: "DB", Secret: &runnerapi.KeyRef{Name: "db", Key: "url"}}},
	}
}

func get[T client.Object](t *testing.T, env *kubetest.Env, k runnerapi.Key, into T) T {
	t.Helper()
	require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Namespace: k.Namespace, Name: k.Name}, into))
	return into
}

func exists(t *testing.T, env *kubetest.Env, k runnerapi.Key, o client.Object) bool {
	t.Helper()
	err := env.Client.Get(t.Context(), client.ObjectKey{Namespace: k.Namespace, Name: k.Name}, o)
	require.NoError(t, client.IgnoreNotFound(err))
	return !apierrors.IsNotFound(err)
}

// rollOut says of a Deployment what its controller would once all pods are ready.
func rollOut(t *testing.T, env *kubetest.Env, k runnerapi.Key) {
	t.Helper()
	d := &appsv1.Deployment{}
	eventually(t, "the deployment exists", func() bool { return exists(t, env, k, d) })
	n := *d.Spec.Replicas
	d.Status = appsv1.DeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: n, UpdatedReplicas: n, ReadyReplicas: n, AvailableReplicas: n,
	}
	require.NoError(t, env.Client.Status().Update(t.Context(), d))
}

func deploy(t *testing.T, e *app.Engine, k runnerapi.Key, spec runnerapi.AppSpec) runnerapi.App {
	t.Helper()
	a, err := e.Deploy(t.Context(), k, spec, byTest)
	require.NoError(t, err)
	return a
}

var code = problemtest.Code

// A spec that was made from an earlier generation would undo what was changed since.
func TestDeploy_FromEarlierGeneration(t *testing.T) {
	t.Parallel()
	_, e, k := onControlPlane(t, "web")
	made := func(generation int64, image string) error {
		spec, opts := web(), byTest
		spec.Image, opts.Generation = image, generation
		_, err := e.Deploy(t.Context(), k, spec, opts)
		return err
	}
	assert.Equal(t, runnerapi.CodeChanged, code(made(1, "example.com/web:1")), "of an App that is not there")
	seen := deploy(t, e, k, web())
	require.NoError(t, made(seen.Generation, "example.com/web:2"))
	assert.Equal(t, runnerapi.CodeChanged, code(made(seen.Generation, "example.com/web:3")))
	now, err := e.Get(t.Context(), k)
	require.NoError(t, err)
	assert.Equal(t, "example.com/web:2", now.Spec.Image)
}

func TestDeploy_CreatesObjects(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "web")
	a := deploy(t, e, k, web())
	assert.EqualValues(t, 1, a.Generation)
	assert.Equal(t, runnerapi.PhaseProgressing, a.Status.Phase)

	d, s := &appsv1.Deployment{}, &corev1.Service{}
	eventually(t, "deployment and service", func() bool { return exists(t, env, k, d) && exists(t, env, k, s) })
	assert.Equal(t, "pipeops", d.Labels["app.kubernetes.io/managed-by"])
	assert.Equal(t, "web", d.Labels["pipeops.io/app"])
	assert.Equal(t, "App", metav1.GetControllerOf(d).Kind)
	pod := d.Spec.Template.Spec
	assert.True(t, *pod.SecurityContext.RunAsNonRoot)
	assert.False(t, *pod.AutomountServiceAccountToken)
	assert.False(t, *pod.Containers[0].SecurityContext.AllowPrivilegeEscalation)
	assert.Equal(t, "db", pod.Containers[0].Env[1].ValueFrom.SecretKeyRef.Name)
	assert.Equal(t, "64Mi", pod.Containers[0].Resources.Requests.Memory().String())
	assert.EqualValues(t, 80, s.Spec.Ports[0].Port)
	assert.EqualValues(t, 8080, s.Spec.Ports[0].TargetPort.IntVal)

	rollOut(t, env, k)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a, err := e.Wait(ctx, k, 1)
	require.NoError(t, err)
	assert.Equal(t, runnerapi.PhaseHealthy, a.Status.Phase)
	assert.Equal(t, []string{"http://web." + k.Namespace + ".svc:80"}, a.Status.URLs)

	again := deploy(t, e, k, web())
	assert.EqualValues(t, 1, again.Generation, "the same spec again changes nothing")
	who := get(t, env, k, &v1alpha1.App{}).Annotations
	assert.Equal(t, "tester", who["pipeops.io/changed-by"])
	assert.Equal(t, "req-1", who["pipeops.io/request-id"])
}

// TestDeploy_ManyAtOnce has two replicas take deploys, and deletions, of one App at the same time.
func TestDeploy_ManyAtOnce(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	one, _ := start(t, env, ns, nil)
	two, _ := start(t, env, ns, nil)
	k := key(ns, "web")
	var group errgroup.Group
	for n := range 50 {
		group.Go(func() error {
			spec := web()
			spec.Image = fmt.Sprintf("registry.example.com/web:%d", n)
			_, err := []*app.Engine{one, two}[n%2].Deploy(t.Context(), k, spec, byTest)
			return err
		})
	}
	require.NoError(t, group.Wait())
	for range 5 {
		group.Go(func() error { _, err := one.Deploy(t.Context(), k, web(), byTest); return err })
		group.Go(func() error {
			if err := two.Delete(t.Context(), k, byTest); code(err) != runnerapi.CodeNotFound {
				return err
			}
			return nil
		})
	}
	require.NoError(t, group.Wait())
}

func TestDeploy_RefusesForeignObjects(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "taken")
	foreign := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 5432}}},
	}
	require.NoError(t, env.Client.Create(t.Context(), foreign))

	_, err := e.Deploy(t.Context(), k, web(), byTest)
	assert.Equal(t, runnerapi.CodeConflict, code(err))
	assert.ErrorContains(t, err, `Service "taken" in namespace `+k.Namespace+` already exists`)
	assert.ErrorContains(t, err, "delete")

	a := &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}, Spec: web()}
	require.NoError(t, env.Client.Create(t.Context(), a), "kubectl asks nobody")
	eventually(t, "the conflict is in the status", func() bool {
		got, err := e.Get(t.Context(), k)
		return err == nil && got.Status.Phase == runnerapi.PhaseFailed && got.Status.Diagnosis != nil &&
			got.Status.Diagnosis.Cause == runnerapi.CauseConflict
	})
	now := get(t, env, k, &corev1.Service{})
	assert.Equal(t, foreign.ResourceVersion, now.ResourceVersion)

	require.NoError(t, e.Delete(t.Context(), k, byTest))
	assert.True(t, exists(t, env, k, &corev1.Service{}), "deleting the App leaves what is not its own")
	assert.False(t, exists(t, env, k, &appsv1.Deployment{}))
}

func TestDelete_RemovesOnlyOwn(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	gone, stays := key(ns, "gone"), key(ns, "gone-not")
	deploy(t, e, gone, web())
	deploy(t, e, stays, web())
	for _, k := range []runnerapi.Key{gone, stays} {
		eventually(t, "children", func() bool {
			return exists(t, env, k, &appsv1.Deployment{}) && exists(t, env, k, &corev1.Service{})
		})
	}
	require.NoError(t, e.Delete(t.Context(), gone, runnerapi.WriteOptions{DryRun: true}))
	assert.True(t, exists(t, env, gone, &v1alpha1.App{}))

	require.NoError(t, e.Delete(t.Context(), gone, byTest))
	assert.False(t, exists(t, env, gone, &v1alpha1.App{}))
	assert.False(t, exists(t, env, gone, &appsv1.Deployment{}))
	assert.False(t, exists(t, env, gone, &corev1.Service{}))
	_, err := e.Get(t.Context(), gone)
	assert.Equal(t, runnerapi.CodeNotFound, code(err))
	_, scaled := e.Scale(t.Context(), gone, runnerapi.Scale{Replicas: new(int32(2))}, byTest)
	_, back := e.Rollback(t.Context(), gone, runnerapi.RollbackTo{}, byTest)
	_, listed := e.Revisions(t.Context(), gone)
	for _, err := range []error{e.Delete(t.Context(), gone, byTest), scaled, back, listed} {
		assert.Equal(t, runnerapi.CodeNotFound, code(err))
		require.ErrorContains(t, err, "there is no App "+gone.String(), "all calls use the same words")
	}
	assert.True(t, exists(t, env, stays, &appsv1.Deployment{}))
	assert.True(t, exists(t, env, stays, &corev1.Service{}))
}

func TestDryRun_ChangesNothing(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "dry")
	dry := runnerapi.WriteOptions{DryRun: true}
	a, err := e.Deploy(t.Context(), k, web(), dry)
	require.NoError(t, err)
	assert.Equal(t, web().Image, a.Spec.Image)
	assert.False(t, exists(t, env, k, &v1alpha1.App{}))
	_, err = e.Get(t.Context(), k)
	assert.Equal(t, runnerapi.CodeNotFound, code(err), "and nothing waits for a change that never comes")

	deploy(t, e, k, web())
	_, err = e.Scale(t.Context(), k, runnerapi.Scale{Replicas: new(int32(9))}, dry)
	require.NoError(t, err)
	_, err = e.Restart(t.Context(), k, dry)
	require.NoError(t, err)
	got := get(t, env, k, &v1alpha1.App{})
	assert.Nil(t, got.Spec.Replicas)
	assert.Empty(t, got.Annotations["pipeops.io/restarted-at"])
}

func TestGet_SeesOwnWrites(t *testing.T) {
	t.Parallel()
	_, e, k := onControlPlane(t, "fresh")
	deploy(t, e, k, web())
	for n := int32(2); n < 30; n++ {
		wrote, err := e.Scale(t.Context(), k, runnerapi.Scale{Replicas: new(n)}, byTest)
		require.NoError(t, err)
		read, err := e.Get(t.Context(), k)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, read.Generation, wrote.Generation)
		assert.Equal(t, n, *read.Spec.Replicas)
		assert.Equal(t, runnerapi.PhaseProgressing, read.Status.Phase)
	}
}

// TestGet_SeesConcurrentWrites has an agent of two namespaces, the other of which is
// written all the time: the cache hears of the two by separate watches.
func TestGet_SeesConcurrentWrites(t *testing.T) {
	suite.Release(t, "reads beside other writers")
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns, other := ownNamespace(t, env), ownNamespace(t, env)
	e, _ := startWith(t, limitedTo(env, ns, other))
	deploy(t, e, key(other, "busy"), web())
	ctx, stop := context.WithCancel(t.Context())
	var busy sync.WaitGroup
	defer busy.Wait()
	defer stop()
	for range 4 {
		busy.Go(func() {
			for n := int32(1); ctx.Err() == nil; n = n%30 + 1 {
				_, _ = e.Scale(ctx, key(other, "busy"), runnerapi.Scale{Replicas: new(n)}, byTest)
			}
		})
	}
	for n := range 50 {
		k := key(ns, fmt.Sprintf("fresh-%d", n))
		wrote := deploy(t, e, k, web())
		read, err := e.Get(t.Context(), k)
		require.NoError(t, err)
		assert.GreaterOrEqual(t, read.Generation, wrote.Generation)
	}
}

func TestDeploy_OnlyManagedNamespaces(t *testing.T) {
	env := kubetest.ControlPlane(t)
	e, _ := startWith(t, everywhere(env))
	for _, other := range []string{"default", "kube-system", "pipeops", "no-such"} {
		_, err := e.Deploy(t.Context(), key(other, "web"), web(), byTest)
		assert.Equal(t, runnerapi.CodeNamespaceNotManaged, code(err), other)
	}
	k := key("default", "stray")
	require.NoError(t, env.Client.Create(t.Context(), &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}, Spec: web()}))
	a := &v1alpha1.App{}
	eventually(t, "the App says why nothing happens", func() bool {
		return exists(t, env, k, a) && a.Status.Phase == runnerapi.PhaseFailed
	})
	assert.Contains(t, a.Status.Diagnosis.Message, `does not manage namespace "default"`)
	assert.False(t, exists(t, env, k, &appsv1.Deployment{}))
	require.NoError(t, env.Client.Delete(t.Context(), a))
	eventually(t, "and it can go", func() bool { return !exists(t, env, k, &v1alpha1.App{}) })

	list, err := e.List(t.Context(), "")
	require.NoError(t, err)
	for _, a := range list {
		assert.NotEqual(t, "default", a.Namespace)
	}
}

func TestDeploy_RefusesBadSpecs(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	_, err := e.Deploy(t.Context(), key(ns, "1web"), web(), byTest)
	assert.Equal(t, runnerapi.CodeInvalid, code(err))
	bad := web()
	bad.Resources.Requests.Memory, bad.Resources.Limits.Memory = "2Gi", "1Gi"
	_, err = e.Deploy(t.Context(), key(ns, "greedy"), bad, byTest)
	p := &runnerapi.Error{}
	require.ErrorAs(t, err, &p)
	assert.Equal(t, http.StatusUnprocessableEntity, p.Status)
	assert.Equal(t, "resources.requests.memory", p.Field)

	k := key(ns, "greedy-kubectl")
	err = env.Client.Create(t.Context(), &v1alpha1.App{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}, Spec: bad})
	assert.True(t, apierrors.IsInvalid(err), "and the cluster says the same: %v", err)
}

// TestDeploy_DelayedKeepsNewerSpec has each command come again after a newer one:
// from a replica that was held in the middle of it, while another carried it out.
func TestDeploy_DelayedKeepsNewerSpec(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "held")
	as := func(command string) runnerapi.WriteOptions {
		opts := byTest
		opts.Command = command
		return opts
	}
	deploy := func(command, image string) error {
		spec := web()
		spec.Image = image
		_, err := e.Deploy(t.Context(), k, spec, as(command))
		return err
	}
	scale := func(command string, n int32) error {
		_, err := e.Scale(t.Context(), k, runnerapi.Scale{Replicas: &n}, as(command))
		return err
	}
	require.NoError(t, deploy("first", "example.com/web:1"), "creates it")
	require.NoError(t, deploy("second", "example.com/web:2"))
	require.NoError(t, deploy("first", "example.com/web:1"))
	require.NoError(t, scale("third", 2))
	require.NoError(t, scale("fourth", 3))
	require.NoError(t, scale("third", 2))
	_, err := e.Pause(t.Context(), k, as("fifth"))
	require.NoError(t, err)
	_, err = e.Resume(t.Context(), k, as("sixth"))
	require.NoError(t, err)
	_, err = e.Pause(t.Context(), k, as("fifth"))
	require.NoError(t, err)

	now := get(t, env, k, &v1alpha1.App{})
	assert.Equal(t, "example.com/web:2", now.Spec.Image)
	require.NotNil(t, now.Spec.Replicas)
	assert.EqualValues(t, 3, *now.Spec.Replicas)
	assert.False(t, now.Spec.IsPaused())
	require.NoError(t, deploy("seventh", "example.com/web:1"), "the same again as its own command")
	assert.Equal(t, "example.com/web:1", get(t, env, k, &v1alpha1.App{}).Spec.Image)
}

// TestDelete_DelayedSparesNewerApp has a delete go on in a replica that was held in the middle
// of it, after another carried it out and a new App came under the same name.
func TestDelete_DelayedSparesNewerApp(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "held-delete")
	answered := false
	held := byTest
	held.Answered = func(context.Context) (bool, error) { return answered, nil }
	deploy := func() string {
		_, err := e.Deploy(t.Context(), k, web(), byTest)
		require.NoError(t, err)
		return string(get(t, env, k, &v1alpha1.App{}).UID)
	}
	deploy()
	require.NoError(t, e.Delete(t.Context(), k, held))
	answered = true
	newer := deploy()
	require.NoError(t, e.Delete(t.Context(), k, held))
	now := get(t, env, k, &v1alpha1.App{})
	assert.Equal(t, newer, string(now.UID))
	assert.True(t, now.DeletionTimestamp.IsZero())
	require.NoError(t, e.Delete(t.Context(), k, byTest))
}
