package app_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// impatient is an Engine that gives volumes and metrics no more time than a test has.
func impatient(t *testing.T, env *kubetest.Env, ns string) *app.Engine {
	t.Helper()
	config := limitedTo(env, ns)
	config.Stabilization.Volume, config.Stabilization.Metrics = 5*time.Second, 5*time.Second
	e, _ := startWith(t, config)
	return e
}

// TestAnAutoscalerWithoutFigures is of an App that asks for no CPU, of which the autoscaler is
// to keep a percentage.
func TestAnAutoscalerWithoutFigures(t *testing.T) {
	t.Parallel()
	env := kubetest.Full(t)
	ns := ownNamespace(t, env)
	e := impatient(t, env, ns)
	k := key(ns, "web")
	deploy(t, e, k, runnerapi.AppSpec{
		Image: helloImage(t, env), Autoscaling: &runnerapi.Autoscaling{Min: 1, Max: 2, CPUPercent: 50},
		Resources: runnerapi.Resources{Requests: runnerapi.ResourceAmounts{CPU: "0"}},
	})
	c := trouble{ // what lasts: at its start each has no figures
		cause: runnerapi.CauseAutoscalingFailed, message: "no metrics returned matched known pods", fix: "resources.requests.cpu above 0", lives: true,
	}
	a := troubled(t, e, k, c)
	checkTrouble(t, a, c)
	assert.Equal(t, runnerapi.PhaseDegraded, a.Status.Phase)
	assert.Equal(t, "horizontalpodautoscaler/web", a.Status.Diagnosis.Object)
}

func TestCronJobsThatDoNotRun(t *testing.T) {
	t.Parallel()
	env := kubetest.Full(t)
	ns := ownNamespace(t, env)
	e := impatient(t, env, ns)
	image := helloImage(t, env)
	never, hung, off := key(ns, "never"), key(ns, "hung"), key(ns, "off")
	cron := func(s runnerapi.Schedule) runnerapi.AppSpec {
		return runnerapi.AppSpec{Image: image, Type: runnerapi.TypeCronJob, Schedule: &s}
	}
	deploy(t, e, hung, cron(runnerapi.Schedule{Cron: "* * * * *", StartingDeadlineSeconds: ptr.To[int64](10)}))
	deploy(t, e, never, cron(runnerapi.Schedule{Cron: "0 0 31 2 *"}))
	deploy(t, e, off, cron(runnerapi.Schedule{Cron: "* * * * *", Suspended: true}))

	c := trouble{cause: runnerapi.CauseNeverDue, message: "no time matches its schedule 0 0 31 2 *", fix: "schedule.cron"}
	checkTrouble(t, troubled(t, e, never, c), c)

	a := settled(t, e, off, 1)
	assert.Equal(t, runnerapi.PhaseHealthy, a.Status.Phase)
	require.Len(t, a.Status.Conditions, 1)
	assert.Equal(t, runnerapi.ReasonSuspended, a.Status.Conditions[0].Reason)

	within(t, 4*time.Minute, "the run that does not end is told of", func() bool {
		a, err := e.Get(t.Context(), hung)
		require.NoError(t, err)
		return a.Status.Diagnosis != nil && a.Status.Diagnosis.Cause == runnerapi.CauseRunsSkipped
	})
	a, err := e.Get(t.Context(), hung)
	require.NoError(t, err)
	assert.Equal(t, runnerapi.PhaseDegraded, a.Status.Phase)
	assert.Contains(t, a.Status.Diagnosis.Object, "job/hung-")
	assert.Contains(t, a.Status.Diagnosis.Fix, "job.deadlineSeconds")
}

func TestAVolumeWhoseProvisionerIsMissing(t *testing.T) {
	t.Parallel()
	env := kubetest.Full(t)
	ns := ownNamespace(t, env)
	for name, mode := range map[string]storagev1.VolumeBindingMode{
		"at-once": storagev1.VolumeBindingImmediate, "consumer": storagev1.VolumeBindingWaitForFirstConsumer,
	} {
		class := &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: ns + "-" + name}, Provisioner: "nowhere.example.com", VolumeBindingMode: ptr.To(mode),
		}
		require.NoError(t, env.Client.Create(t.Context(), class))
		t.Cleanup(func() { assert.NoError(t, client.IgnoreNotFound(env.Client.Delete(context.Background(), class))) })
	}
	e := impatient(t, env, ns)
	for _, name := range []string{"at-once", "consumer"} {
		deploy(t, e, key(ns, name), runnerapi.AppSpec{
			Image: helloImage(t, env), Type: runnerapi.TypeStatefulSet,
			Volumes: []runnerapi.Volume{{Name: "data", MountPath: "/data", Claim: &runnerapi.VolumeClaim{Size: "1Gi", StorageClass: ns + "-" + name}}},
		})
	}
	for _, name := range []string{"at-once", "consumer"} {
		c := trouble{
			cause:   runnerapi.CauseVolumeNotBound,
			message: "claim data-" + name + "-0 (storage class " + ns + "-" + name + ") after 5s: provisioner nowhere.example.com has not made it",
			fix:     "provisioner nowhere.example.com of storage class " + ns + "-" + name,
		}
		checkTrouble(t, troubled(t, e, key(ns, name), c), c)
	}
}

// TestPublicURLsAreThoseThatAreServed follows an Ingress without class, controller and
// certificate until it has all of them.
func TestPublicURLsAreThoseThatAreServed(t *testing.T) {
	t.Parallel()
	env := kubetest.ControlPlane(t)
	ns := ownNamespace(t, env)
	e := impatient(t, env, ns)
	k := key(ns, "shop")
	spec := web()
	spec.Ingress = &runnerapi.Ingress{Class: ns, Hosts: []runnerapi.IngressHost{
		{Host: "shop.example.com", TLSSecret: "cert"}, {Host: "plain.example.com"},
	}}
	await := func(reason string, urls ...string) {
		t.Helper()
		eventually(t, reason, func() bool {
			a, err := e.Get(t.Context(), k)
			require.NoError(t, err)
			return len(a.Status.Conditions) == 1 && a.Status.Conditions[0].Type == runnerapi.ConditionIngressReady &&
				a.Status.Conditions[0].Reason == reason && assert.ObjectsAreEqual(urls, a.Status.PublicURLs)
		})
	}
	secret := func(kind corev1.SecretType) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "cert"}, Type: kind,
			Data: map[string][]byte{corev1.TLSCertKey: []byte("-"), corev1.TLSPrivateKeyKey: []byte("-")},
		}
	}
	wrong := secret(corev1.SecretTypeOpaque)
	require.NoError(t, env.Client.Create(t.Context(), wrong))
	deploy(t, e, k, spec)
	await(runnerapi.ReasonBadTLSSecret)
	require.NoError(t, env.Client.Delete(t.Context(), wrong))
	await(runnerapi.ReasonNoTLSSecret)
	require.NoError(t, env.Client.Create(t.Context(), secret(corev1.SecretTypeTLS)))
	await(runnerapi.ReasonNoIngressClass)

	class := &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: networkingv1.IngressClassSpec{Controller: "example.com/none"}}
	require.NoError(t, env.Client.Create(t.Context(), class))
	t.Cleanup(func() { assert.NoError(t, client.IgnoreNotFound(env.Client.Delete(context.Background(), class))) })
	publish(t, env, k)
	await(runnerapi.ReasonServed, "https://shop.example.com/", "http://plain.example.com/")
}
