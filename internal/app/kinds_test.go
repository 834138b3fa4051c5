package app_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// full is a spec that asks for everything that stands beside a workload.
func full() runnerapi.AppSpec {
	return runnerapi.AppSpec{
		Image: "example.com/web:1", Ports: []runnerapi.Port{{Port: 8080, Service: 80}},
		Ingress: &runnerapi.Ingress{
			Class: "nginx", Annotations: map[string]string{"example.com/a": "b"},
			Hosts: []runnerapi.IngressHost{{Host: "a.example.com", TLSSecret: "a-tls"}, {Host: "a.example.com", Path: "/api"}},
		},
		Autoscaling: &runnerapi.Autoscaling{Min: 2, Max: 5},
		Disruption:  &runnerapi.Disruption{MaxUnavailable: "1"},
	}
}

func TestDeploy_AddsAndRemovesCompanions(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "web")
	_, err := e.Deploy(t.Context(), k, full(), runnerapi.WriteOptions{DryRun: true})
	require.NoError(t, err, "the cluster takes all of it")
	deploy(t, e, k, full())

	ing, hpa, pdb, d := &networkingv1.Ingress{}, &autoscalingv2.HorizontalPodAutoscaler{}, &policyv1.PodDisruptionBudget{}, &appsv1.Deployment{}
	besides := []client.Object{ing, hpa, pdb, &corev1.Service{}}
	for _, o := range append(besides, d) {
		eventually(t, "it is made", func() bool { return exists(t, env, k, o) })
		assert.True(t, metav1.IsControlledBy(o, get(t, env, k, &v1alpha1.App{})))
	}
	assert.Equal(t, "nginx", *ing.Spec.IngressClassName)
	assert.Equal(t, "b", ing.Annotations["example.com/a"])
	require.Len(t, ing.Spec.Rules, 1)
	assert.Len(t, ing.Spec.Rules[0].HTTP.Paths, 2)
	assert.EqualValues(t, 80, ing.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Port.Number)
	assert.Equal(t, []networkingv1.IngressTLS{{Hosts: []string{"a.example.com"}, SecretName: "a-tls"}}, ing.Spec.TLS)
	assert.Equal(t, "Deployment", hpa.Spec.ScaleTargetRef.Kind)
	assert.EqualValues(t, 80, *hpa.Spec.Metrics[0].Resource.Target.AverageUtilization)
	assert.EqualValues(t, 2, *d.Spec.Replicas)

	ing.Spec.Rules[0].Host = "evil.example.com"
	require.NoError(t, env.Client.Update(t.Context(), ing))
	eventually(t, "drift is put back", func() bool { return get(t, env, k, &networkingv1.Ingress{}).Spec.Rules[0].Host == "a.example.com" })

	less := full()
	less.Ingress, less.Autoscaling, less.Disruption, less.Ports, less.Replicas = nil, nil, nil, nil, new(int32(1))
	deploy(t, e, k, less)
	for _, o := range besides {
		eventually(t, "it is gone", func() bool { return !exists(t, env, k, o) })
	}
	eventually(t, "one pod again, without ports", func() bool {
		spec := get(t, env, k, &appsv1.Deployment{}).Spec
		return *spec.Replicas == 1 && len(spec.Template.Spec.Containers[0].Ports) == 0
	})
}

// TestDeploy_KeepsOmittedFields keeps the scale (replicas and autoscaling) and the pause.
func TestDeploy_KeepsOmittedFields(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "web")
	put := func(spec runnerapi.AppSpec) runnerapi.AppSpec {
		t.Helper()
		return deploy(t, e, k, spec).Spec
	}
	assert.Nil(t, put(image("1")).Replicas, "a new App has none to keep")
	_, err := e.Scale(t.Context(), k, runnerapi.Scale{Replicas: new(int32(5))}, byTest)
	require.NoError(t, err)
	_, err = e.Pause(t.Context(), k, byTest)
	require.NoError(t, err)
	kept := put(image("2"))
	assert.Equal(t, new(int32(5)), kept.Replicas)
	assert.True(t, kept.IsPaused())
	resumed := image("3")
	resumed.Paused = new(false)
	put(resumed)
	assert.Equal(t, get(t, env, k, &v1alpha1.App{}).Generation, deploy(t, e, k, resumed).Generation, "the same again is not a change")
	_, err = e.Scale(t.Context(), k, runnerapi.Scale{Min: new(int32(2)), Max: new(int32(4))}, byTest)
	require.NoError(t, err)
	kept = put(image("4"))
	require.NotNil(t, kept.Autoscaling)
	assert.EqualValues(t, 4, kept.Autoscaling.Max)
	var asked runnerapi.AppSpec
	refusing := byTest
	refusing.Admit = func(spec runnerapi.AppSpec) error {
		asked = spec
		return runnerapi.PolicyDenied("stay within it", "at most 3 pods")
	}
	_, err = e.Deploy(t.Context(), k, image("5"), refusing)
	assert.Equal(t, runnerapi.CodePolicyDenied, code(err))
	assert.EqualValues(t, 4, asked.Autoscaling.Max, "the policy is asked about what stays")
}

func TestAutoscaling_KeepsReplicas(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "web")
	deploy(t, e, k, full())
	d := &appsv1.Deployment{}
	eventually(t, "made", func() bool { return exists(t, env, k, d) })
	scaleTo := func(n int32) {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"replicas":`+string('0'+n)+`}}`))
		require.NoError(t, env.Client.Patch(t.Context(), get(t, env, k, &appsv1.Deployment{}), patch))
	}
	replicas := func() int32 { return *get(t, env, k, &appsv1.Deployment{}).Spec.Replicas }
	scaleTo(4)
	other := full()
	other.Image = "example.com/web:2"
	deploy(t, e, k, other)
	eventually(t, "the new image is there", func() bool {
		return get(t, env, k, &appsv1.Deployment{}).Spec.Template.Spec.Containers[0].Image == other.Image
	})
	assert.EqualValues(t, 4, replicas(), "a deploy leaves the autoscaler's number alone")

	_, err := e.Scale(t.Context(), k, runnerapi.Scale{Max: new(int32(3)), CPUPercent: new(int32(60))}, byTest)
	require.NoError(t, err)
	eventually(t, "within the new bounds", func() bool { return replicas() == 3 })
	hpa := &autoscalingv2.HorizontalPodAutoscaler{}
	eventually(t, "the autoscaler has them", func() bool {
		hpa = get(t, env, k, &autoscalingv2.HorizontalPodAutoscaler{})
		return hpa.Spec.MaxReplicas == 3 && *hpa.Spec.Metrics[0].Resource.Target.AverageUtilization == 60
	})
	assert.EqualValues(t, 2, *hpa.Spec.MinReplicas)

	_, err = e.Scale(t.Context(), k, runnerapi.Scale{Min: new(int32(4))}, byTest)
	assert.Equal(t, runnerapi.CodeInvalid, code(err), "the cluster holds the bounds against each other")
	_, err = e.Scale(t.Context(), k, runnerapi.Scale{}, byTest)
	assert.Equal(t, runnerapi.CodeInvalid, code(err))

	a, err := e.Scale(t.Context(), k, runnerapi.Scale{Replicas: new(int32(1))}, byTest)
	require.NoError(t, err)
	assert.Nil(t, a.Spec.Autoscaling)
	eventually(t, "a fixed number", func() bool { return replicas() == 1 && !exists(t, env, k, hpa) })
	_, err = e.Scale(t.Context(), k, runnerapi.Scale{Max: new(int32(3))}, byTest)
	assert.Equal(t, runnerapi.CodeInvalid, code(err), "no bounds yet: both are needed")

	out, err := env.Cluster.Kubectl(t.Context(), "-n", k.Namespace, "scale", "apps.pipeops.io/"+k.Name, "--replicas=2")
	require.NoError(t, err, string(out))
	eventually(t, "kubectl scale works on an App", func() bool { return replicas() == 2 })
	assert.Zero(t, driftOf(t, e, k).Corrections, "new bounds are not drift")
}

func TestDeploy_RefusesImmutableChanges(t *testing.T) {
	t.Parallel()
	env, e, k := onControlPlane(t, "db")
	spec := runnerapi.AppSpec{Image: "example.com/db:1", Type: runnerapi.TypeStatefulSet, Volumes: []runnerapi.Volume{
		{Name: "data", MountPath: "/data", Claim: &runnerapi.VolumeClaim{Size: "1Gi"}},
	}}
	deploy(t, e, k, spec)
	other := spec
	other.Type, other.Volumes = runnerapi.TypeDeployment, nil
	_, err := e.Deploy(t.Context(), k, other, byTest)
	assert.Equal(t, runnerapi.CodeConflict, code(err))
	assert.ErrorContains(t, err, "type: the type of an App cannot change (fix: delete the App and deploy it again with the new type)")

	larger := spec
	larger.Volumes = []runnerapi.Volume{{Name: "data", MountPath: "/data", Claim: &runnerapi.VolumeClaim{Size: "2Gi"}}}
	_, err = e.Deploy(t.Context(), k, larger, byTest)
	assert.Equal(t, runnerapi.CodeConflict, code(err))
	assert.ErrorContains(t, err, "volumes: the claims of a StatefulSet cannot change")

	for _, bad := range []runnerapi.AppSpec{other, larger} { // and by kubectl
		err = retry.RetryOnConflict(retry.DefaultRetry, func() error { // the engine writes its status
			a := get(t, env, k, &v1alpha1.App{})
			a.Spec = bad
			return env.Client.Update(t.Context(), a)
		})
		require.True(t, apierrors.IsInvalid(err), "%v", err)
		assert.ErrorContains(t, err, "cannot change")
	}
	moved := spec
	moved.Volumes = []runnerapi.Volume{{Name: "data", MountPath: "/var/data", Claim: &runnerapi.VolumeClaim{Size: "1Gi"}}}
	deploy(t, e, k, moved)

	for _, fixed := range []runnerapi.AppSpec{
		{Image: "a", Type: runnerapi.TypeDaemonSet},
		{Image: "a", Type: runnerapi.TypeCronJob, Schedule: &runnerapi.Schedule{Cron: "@daily"}},
	} {
		k := key(k.Namespace, strings.ToLower(string(fixed.Type)))
		deploy(t, e, k, fixed)
		_, err = e.Scale(t.Context(), k, runnerapi.Scale{Replicas: new(int32(2))}, byTest)
		assert.Equal(t, runnerapi.CodeInvalid, code(err))
		assert.ErrorContains(t, err, "which has no number of pods to set")
	}
	_, err = e.Restart(t.Context(), key(k.Namespace, "cronjob"), byTest)
	assert.Equal(t, runnerapi.CodeInvalid, code(err))
}

// TestDeploy_FullSpec lets the API server check the objects of the
// largest specs: a dry run sends each.
func TestDeploy_FullSpec(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e, _ := start(t, env, ns, nil)
	for name, spec := range goodSpecs(t) {
		t.Run(name, func(t *testing.T) {
			k := key(ns, "dry-"+strings.ToLower(name))
			_, err := e.Deploy(t.Context(), k, spec, runnerapi.WriteOptions{DryRun: true})
			require.NoError(t, err)
			assert.False(t, exists(t, env, k, &v1alpha1.App{}))

			deploy(t, e, k, spec)
			eventually(t, "the objects are as they should be, and stay so", func() bool {
				a, err := e.Get(t.Context(), k)
				require.NoError(t, err)
				require.Nil(t, a.Status.Diagnosis)
				return a.Status.ObservedGeneration == 1
			})
			require.NoError(t, e.Delete(t.Context(), k, byTest))
		})
	}
}

func TestJob_RunsOncePerSpec(t *testing.T) {
	t.Parallel()
	env, e, k := onNodes(t, "migrate")
	image := helloImage(t, env)
	spec := runnerapi.AppSpec{
		Image: image, Type: runnerapi.TypeJob, Args: []string{"-crash-after=500ms", "-exit-code=0"},
		Job: &runnerapi.JobOptions{TTLSeconds: new(int32(0))},
	}
	deploy(t, e, k, spec)
	a := settled(t, e, k, 1)
	assert.Equal(t, runnerapi.PhaseHealthy, a.Status.Phase, "%+v", a.Status)
	require.Len(t, a.Status.Runs, 1)
	assert.Equal(t, runnerapi.RunSucceeded, a.Status.Runs[0].Outcome)
	require.NotNil(t, a.Status.Runs[0].FinishedAt)
	within(t, podPatience, "its time is up", func() bool { return !exists(t, env, k, &batchv1.Job{}) })
	within(t, podPatience, "its pod goes with it", func() bool { return len(podNames(t, env, k.Namespace)) == 0 })

	again := deploy(t, e, k, spec)
	assert.EqualValues(t, 1, again.Generation)
	out, err := env.Cluster.Kubectl(t.Context(), "-n", k.Namespace, "annotate", "apps.pipeops.io", k.Name, "look=again")
	require.NoError(t, err, string(out))
	a = settled(t, e, k, 1)
	assert.Equal(t, runnerapi.PhaseHealthy, a.Status.Phase)
	assert.Len(t, a.Status.Runs, 1, "the outcome stays")
	assert.False(t, exists(t, env, k, &batchv1.Job{}), "it does not run again")

	spec.Args, spec.Job = []string{"-crash-after=50ms", "-exit-code=7"}, &runnerapi.JobOptions{Retries: new(int32(0))}
	failing := deploy(t, e, k, spec)
	require.Equal(t, runnerapi.PhaseFailed, settled(t, e, k, failing.Generation).Status.Phase)
	first := get(t, env, k, &batchv1.Job{}).UID
	_, err = e.Restart(t.Context(), k, byTest)
	require.NoError(t, err)
	a = settled(t, e, k, failing.Generation)
	assert.Equal(t, runnerapi.CauseJobFailed, a.Status.Diagnosis.Cause)
	assert.NotEqual(t, first, get(t, env, k, &batchv1.Job{}).UID, "a restart runs it again")

	require.NoError(t, e.Delete(t.Context(), k, byTest))
	within(t, podPatience, "the Job goes with its App", func() bool { return !exists(t, env, k, &batchv1.Job{}) })
}

// TestCronJob_Runs starts runs of a CronJob by hand, as kubectl create job does, for
// its own come once a minute at best.
func TestCronJob_Runs(t *testing.T) {
	t.Parallel()
	env, e, k := onNodes(t, "nightly")
	spec := runnerapi.AppSpec{
		Image: helloImage(t, env), Type: runnerapi.TypeCronJob, Args: []string{"-crash-after=50ms", "-exit-code=0"},
		Schedule: &runnerapi.Schedule{Cron: "0 0 1 1 *"}, Job: &runnerapi.JobOptions{Retries: new(int32(0))},
	}
	deploy(t, e, k, spec)
	a := settled(t, e, k, 1)
	assert.Equal(t, runnerapi.PhaseHealthy, a.Status.Phase, "its schedule stands")
	run := func(name string) {
		out, err := env.Cluster.Kubectl(t.Context(), "-n", k.Namespace, "create", "job", name, "--from=cronjob/nightly")
		require.NoError(t, err, string(out))
		j := &batchv1.Job{}
		require.NoError(t, env.Client.Get(t.Context(), client.ObjectKey{Namespace: k.Namespace, Name: name}, j))
	}
	is := func(outcomes ...runnerapi.RunOutcome) func() bool {
		return func() bool {
			var err error
			a, err = e.Get(t.Context(), k)
			require.NoError(t, err)
			if len(a.Status.Runs) != len(outcomes) {
				return false
			}
			for i, o := range outcomes {
				if a.Status.Runs[i].Outcome != o {
					return false
				}
			}
			return true
		}
	}
	run("nightly-1")
	within(t, podPatience, "the run is in the status", is(runnerapi.RunSucceeded))
	assert.Equal(t, runnerapi.PhaseHealthy, a.Status.Phase)

	spec.Args = []string{"-crash-after=50ms", "-exit-code=9"}
	failing := deploy(t, e, k, spec)
	a = settled(t, e, k, failing.Generation)
	assert.Equal(t, runnerapi.PhaseHealthy, a.Status.Phase, "a run of the old spec does not count for the new one")
	eventually(t, "the new template", func() bool {
		return get(t, env, k, &batchv1.CronJob{}).Spec.JobTemplate.Spec.Template.Spec.Containers[0].Args[1] == "-exit-code=9"
	})
	run("nightly-2")
	within(t, podPatience, "both runs are in the status", is(runnerapi.RunFailed, runnerapi.RunSucceeded))
	assert.Equal(t, runnerapi.PhaseFailed, a.Status.Phase)
	require.NotNil(t, a.Status.Diagnosis)
	assert.Equal(t, runnerapi.CauseJobFailed, a.Status.Diagnosis.Cause)
	assert.EqualValues(t, 9, *a.Status.Diagnosis.ExitCode)

	require.NoError(t, e.Delete(t.Context(), k, byTest))
	within(t, podPatience, "the runs go with their App", func() bool {
		var jobs batchv1.JobList
		require.NoError(t, env.Client.List(t.Context(), &jobs, client.InNamespace(k.Namespace)))
		return len(jobs.Items) == 0
	})
}

// volume is one that a claim of this class gets.
func volume(t *testing.T, env *kubetest.Env, name, class string) {
	t.Helper()
	pv := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: mustParse("1Gi")}, StorageClassName: class,
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{
				Path: t.TempDir(), Type: new(corev1.HostPathDirectoryOrCreate),
			}},
		},
	}
	require.NoError(t, env.Client.Create(t.Context(), pv))
	t.Cleanup(func() { assert.NoError(t, client.IgnoreNotFound(env.Client.Delete(context.Background(), pv))) })
}

func TestStatefulSet_Lifecycle(t *testing.T) {
	suite.Release(t, "the life of a StatefulSet")
	t.Parallel()
	env, e, k := onNodes(t, "db")
	spec := runnerapi.AppSpec{
		Image: helloImage(t, env), Type: runnerapi.TypeStatefulSet, Replicas: new(int32(2)),
		Ports: []runnerapi.Port{{Port: 8080}}, Probes: ready(8080),
		Volumes: []runnerapi.Volume{{Name: "data", MountPath: "/data", Claim: &runnerapi.VolumeClaim{Size: "1Gi", StorageClass: k.Namespace}}},
	}
	volume(t, env, k.Namespace+"-0", k.Namespace)
	deploy(t, e, k, spec)
	a := settled(t, e, k, 1)
	require.NotNil(t, a.Status.Diagnosis, "%+v", a.Status)
	assert.Equal(t, runnerapi.CauseVolumeNotBound, a.Status.Diagnosis.Cause, "there is a volume for the first pod only")
	assert.Contains(t, a.Status.Diagnosis.Message, "data-db-1")
	assert.Equal(t, runnerapi.PhaseDegraded, a.Status.Phase, "the first serves")
	volume(t, env, k.Namespace+"-1", k.Namespace)
	within(t, podPatience, "it heals by itself", func() bool {
		a, err := e.Get(t.Context(), k)
		return err == nil && a.Status.Phase == runnerapi.PhaseHealthy
	})
	assert.Equal(t, []string{"db-0", "db-1"}, podNames(t, env, k.Namespace))
	assert.True(t, exists(t, env, key(k.Namespace, "db-headless"), &corev1.Service{}))

	bad := spec
	bad.Image = "apps.test/no-such-image:5"
	broken := deploy(t, e, k, bad)
	a = settled(t, e, k, broken.Generation)
	assert.Equal(t, runnerapi.PhaseDegraded, a.Status.Phase, "the first pod is unchanged")
	assert.Equal(t, runnerapi.CauseImageNotFound, a.Status.Diagnosis.Cause)
	assert.Equal(t, "pod/db-1", a.Status.Diagnosis.Object, "the last is replaced first")
	eventually(t, "its controller has counted", func() bool {
		a, err := e.Get(t.Context(), k)
		return err == nil && a.Status.ReadyReplicas == 1
	})

	spec.Args = []string{"-listen=:8080"}
	cured := deploy(t, e, k, spec)
	a = settled(t, e, k, cured.Generation)
	require.Equal(t, runnerapi.PhaseHealthy, a.Status.Phase, "%+v %+v", a.Status, a.Status.Diagnosis)

	require.NoError(t, e.Delete(t.Context(), k, byTest))
	assert.False(t, exists(t, env, k, &appsv1.StatefulSet{}))
	assert.False(t, exists(t, env, key(k.Namespace, "db-headless"), &corev1.Service{}))
	assert.True(t, exists(t, env, key(k.Namespace, "data-db-0"), &corev1.PersistentVolumeClaim{}), "what the pods stored stays")
}

func mustParse(s string) resource.Quantity { return resource.MustParse(s) }

func goodSpecs(t *testing.T) map[string]runnerapi.AppSpec {
	t.Helper()
	all := map[string]runnerapi.AppSpec{}
	for name, raw := range runnertest.GoodSpecs() {
		var spec runnerapi.AppSpec
		require.NoError(t, json.Unmarshal([]byte(raw), &spec))
		spec.Image = "example.com/web:1"
		all[name] = spec
	}
	return all
}

// ends returns arguments with which test/apps/hello logs its end, and exits with that code.
func ends(code string) []string { return []string{"-crash-after=50ms", "-exit-code=" + code} }

// TestJob_Rerun distinguishes runs of the same spec by the log of each attempt.
func TestJob_Rerun(t *testing.T) {
	suite.Release(t, "further lives of Jobs and Pipelines")
	t.Parallel()
	env, e, k := onNodes(t, "migrate")
	spec := runnerapi.JobSpec{Image: helloImage(t, env), Args: ends("3"), Retries: new(int32(1)), Run: "one"}
	log := followUntilDone(t, func(ctx context.Context, emit func(runnerapi.LogLine) error) error {
		deploy(t, e, k, spec.AppSpec())
		return e.Logs(ctx, k, runnerapi.LogOptions{Follow: true, Tail: -1, UntilDone: true}, emit)
	})
	j := runnerapi.JobOf(settled(t, e, k, 1))
	require.Equal(t, runnerapi.JobFailed, j.Status.State, "%+v", j.Status)
	assert.EqualValues(t, 2, j.Status.Tries)
	assert.EqualValues(t, 3, *j.Status.ExitCode)
	assert.Equal(t, 2, strings.Count(log, "crashing on purpose"), "both tries, to their ends: %s", log)
	first := get(t, env, k, &batchv1.Job{}).UID

	spec.Run, spec.Retries = "two", new(int32(0))
	again := deploy(t, e, k, spec.AppSpec())
	j = runnerapi.JobOf(settled(t, e, k, again.Generation))
	assert.Equal(t, runnerapi.JobFailed, j.Status.State)
	assert.EqualValues(t, 1, j.Status.Tries)
	assert.NotEqual(t, first, get(t, env, k, &batchv1.Job{}).UID)
	require.NoError(t, e.Delete(t.Context(), k, byTest))
}

// followUntilDone follows a log until it ends by itself, and returns it.
func followUntilDone(t *testing.T, read func(context.Context, func(runnerapi.LogLine) error) error) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), podPatience)
	t.Cleanup(cancel)
	var text strings.Builder
	began := time.Now()
	err := read(ctx, func(l runnerapi.LogLine) error {
		text.WriteString(l.Pod + " " + l.Line + "\n")
		return nil
	})
	require.NoError(t, err)
	require.NoError(t, ctx.Err(), "it did not end after %s", time.Since(began))
	return text.String()
}

// driftOf returns the drift in an App's status.
func driftOf(t *testing.T, e *app.Engine, k runnerapi.Key) runnerapi.Drift {
	t.Helper()
	a, err := e.Get(t.Context(), k)
	require.NoError(t, err)
	return ptr.Deref(a.Status.Drift, runnerapi.Drift{})
}
