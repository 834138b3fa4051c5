package app_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/cluster"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

// trouble is one way for an App to fail.
type trouble struct {
	spec    runnerapi.AppSpec
	signal  signal
	cause   runnerapi.Cause
	message string
	fix     string
	lives   bool // it serves now and then, as far as a kubelet that is late can tell
}

// TestRealFailures breaks Apps in every way that the diagnosis knows and that a
// spec alone can bring about, all at once, on a real node. Each is diagnosed
// right after its signal.
func TestRealFailures(t *testing.T) {
	t.Parallel()
	env := kubetest.Full(t)
	ns := ownNamespace(t, env)
	e := startByEvents(t, env, ns)
	seen := newSightings()
	seen.in(t, env, ns)
	cases := troubles(helloImage(t, env), rootImage(t, env))
	for name, c := range cases {
		seen.expect(name, c.cause, c.signal)
		deploy(t, e, key(ns, name), c.spec)
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			checkTrouble(t, troubled(t, e, key(ns, name), c), c)
			seen.report(t, name)
		})
	}
}

// troubled is the App once it says what is wrong. It may have done well first, and
// on a machine under load an event may come after what it tells of.
func troubled(t *testing.T, e *app.Engine, k runnerapi.Key, c trouble) runnerapi.App {
	t.Helper()
	var a runnerapi.App
	met := polled(podPatience, func() bool {
		var err error
		a, err = e.Get(t.Context(), k)
		require.NoError(t, err)
		d := a.Status.Diagnosis
		return d != nil && d.Cause == c.cause && strings.Contains(d.Message, c.message)
	})
	assert.True(t, met, "no %s with %q within %s: %+v", c.cause, c.message, podPatience, a.Status)
	return a
}

func checkTrouble(t *testing.T, a runnerapi.App, c trouble) {
	t.Helper()
	d := a.Status.Diagnosis
	require.NotNil(t, d, "%+v", a.Status)
	t.Logf("%s; fix: %s", d.Message, d.Fix)
	if !c.lives {
		assert.Equal(t, runnerapi.PhaseFailed, a.Status.Phase)
	}
	assert.Equal(t, c.cause, d.Cause)
	assert.Contains(t, d.Message, c.message)
	assert.Contains(t, d.Fix, c.fix)
	assert.NotEmpty(t, d.Fix)
	assert.NotEmpty(t, d.Object)
	if strings.HasPrefix(c.message, "exit code") {
		assert.EqualValues(t, 3, *d.ExitCode)
		assert.Contains(t, strings.Join(d.LastLines, "\n"), "crashing on purpose")
	}
}

func troubles(image, root string) map[string]trouble {
	configError := waits("CreateContainerConfigError")
	pull := waits("ErrImagePull", "ImagePullBackOff")
	limit := func(memory string) runnerapi.Resources {
		return runnerapi.Resources{Limits: runnerapi.ResourceAmounts{Memory: memory}}
	}
	return map[string]trouble{
		"no-image": {
			runnerapi.AppSpec{Image: "apps.test/no-such-image:1"}, pull,
			runnerapi.CauseImageNotFound, "apps.test/no-such-image:1 does not exist", "docker push", false,
		},
		"private-image": {
			runnerapi.AppSpec{Image: "apps.test/private/web:1"}, pull,
			runnerapi.CauseImagePullDenied, "wants credentials", "imagePullSecrets", false,
		},
		"bad-image": {
			runnerapi.AppSpec{Image: "Apps.Test/UPPER"}, waits("InvalidImageName"),
			runnerapi.CauseInvalidImage, "is not an image reference", "write image as", false,
		},
		"root-image": {
			runnerapi.AppSpec{Image: root}, configError,
			runnerapi.CauseRunsAsRoot, "runs as root", "security.runAsUser", false,
		},
		"no-secret": {
			runnerapi.AppSpec{Image: image, EnvFrom: []runnerapi.EnvSource{{Secret: "nowhere"}}}, configError,
			runnerapi.CauseMissingSecret, `secret "nowhere"`, `create secret "nowhere"`, false,
		},
		"no-config": {
			runnerapi.AppSpec{Image: image, EnvFrom: []runnerapi.EnvSource{{ConfigMap: "nowhere"}}}, configError,
			runnerapi.CauseMissingConfigMap, `config map "nowhere"`, `create config map "nowhere"`, false,
		},
		"no-key": {
			runnerapi.AppSpec{Image: image, Env: []runnerapi.EnvVar{{Name: "A", ConfigMap: &runnerapi.KeyRef{Name: "kube-root-ca.crt", Key: "nowhere"}}}},
			configError, runnerapi.CauseMissingKey, `config map "kube-root-ca.crt" has no key "nowhere"`, `add key "nowhere"`, false,
		},
		"no-file": {
			runnerapi.AppSpec{Image: image, Files: []runnerapi.File{{Path: "/etc/certs", Secret: &runnerapi.FileRef{Name: "certs"}}}},
			says(1, "FailedMount"), runnerapi.CauseMissingSecret, `secret "certs"`, `create secret "certs"`, false,
		},
		"no-command": {
			runnerapi.AppSpec{Image: image, Command: []string{"/bin/nowhere"}}, either(waits("RunContainerError"), ended("StartError")),
			runnerapi.CauseBadCommand, "/bin/nowhere", "correct command and args", false,
		},
		"crashing": {
			runnerapi.AppSpec{Image: image, Args: []string{"-crash-after=50ms", "-exit-code=3"}}, looping,
			runnerapi.CauseCrashLoop, "exit code 3", "logs --previous", true,
		},
		"ending": {
			runnerapi.AppSpec{Image: image, Args: []string{"-crash-after=50ms", "-exit-code=0"}}, looping,
			runnerapi.CauseCrashLoop, "ends by itself", "type Job", true,
		},
		"clashing": {
			runnerapi.AppSpec{Image: image, Args: []string{"-also-listen=:8080"}}, looping,
			runnerapi.CausePortClash, "port 8080 is taken", "correct args, env or ports", true,
		},
		"hungry": {
			runnerapi.AppSpec{Image: image, Args: []string{"-eat-memory"}, Resources: limit("40Mi")}, ended("OOMKilled"),
			runnerapi.CauseOutOfMemory, "limit of 40Mi", "resources.limits.memory", true,
		},
		"too-big": {
			runnerapi.AppSpec{Image: image, Resources: runnerapi.Resources{Requests: runnerapi.ResourceAmounts{CPU: "900"}}}, unscheduled,
			runnerapi.CauseUnschedulable, "Insufficient cpu", "resources.requests.cpu (now 900 per pod)", false,
		},
		"no-claim": {
			runnerapi.AppSpec{Image: image, Volumes: []runnerapi.Volume{{Name: "data", MountPath: "/data", ExistingClaim: "nowhere"}}}, unscheduled,
			runnerapi.CauseVolumeNotBound, `claim "nowhere"`, "volumes.existingClaim", false,
		},
		"no-class": {
			runnerapi.AppSpec{Image: image, Type: runnerapi.TypeStatefulSet, Volumes: []runnerapi.Volume{
				{Name: "data", MountPath: "/data", Claim: &runnerapi.VolumeClaim{Size: "1Gi", StorageClass: "nowhere"}},
			}},
			says(1, "ProvisioningFailed"),
			runnerapi.CauseVolumeNotBound, "nowhere", "volumes.claim.storageClass", false,
		},
		"unready": {
			runnerapi.AppSpec{Image: image, Args: []string{"-never-ready"}, Probes: ready(8080)}, says(2, "Unhealthy"),
			runnerapi.CauseProbeFailing, "statuscode: 503", "probes.readiness", false,
		},
		"unstarted": {
			runnerapi.AppSpec{Image: image, Probes: runnerapi.Probes{Startup: &runnerapi.Probe{TCP: &runnerapi.TCPProbe{Port: 9}, PeriodSeconds: 1, FailureThreshold: 2}}},
			ended("Completed"), runnerapi.CauseProbeFailing, "the startup probe (TCP port 9) fails: dial tcp", "probes.startup", false,
		},
		"dying": {
			runnerapi.AppSpec{Image: image, Probes: runnerapi.Probes{Liveness: &runnerapi.Probe{TCP: &runnerapi.TCPProbe{Port: 9}, PeriodSeconds: 1, FailureThreshold: 1}}},
			ended("Completed"), runnerapi.CauseProbeFailing, "the liveness probe (TCP port 9) fails: dial tcp", "probes.liveness", true,
		},
		"never-done": { // and nothing says why
			runnerapi.AppSpec{
				Image: image, ProgressDeadline: ptr.To[int32](10),
				Probes: runnerapi.Probes{Readiness: &runnerapi.Probe{TCP: &runnerapi.TCPProbe{Port: 8080}, InitialDelaySeconds: 3600}},
			},
			stalled, runnerapi.CauseDeadlinePassed, "no progress for 10 s", "raise progressDeadlineSeconds", false,
		},
		"failing-job": {
			runnerapi.AppSpec{
				Image: image, Type: runnerapi.TypeJob, Args: []string{"-crash-after=50ms", "-exit-code=7"}, Job: &runnerapi.JobOptions{Retries: ptr.To[int32](0)},
			},
			failedRun, runnerapi.CauseJobFailed, "with exit code 7", "restart", false,
		},
		"late-job": {
			runnerapi.AppSpec{Image: image, Type: runnerapi.TypeJob, Job: &runnerapi.JobOptions{DeadlineSeconds: ptr.To[int64](2)}},
			failedRun, runnerapi.CauseDeadlinePassed, "deadline of 2 s", "job.deadlineSeconds", false,
		},
	}
}

// rootImage is an image that runs as root.
func rootImage(t *testing.T, env *kubetest.Env) string {
	t.Helper()
	const ref = "apps.test/root:1"
	img, err := cluster.BuildProgram(t.Context(), cluster.Program{Package: "./test/apps/hello"})
	require.NoError(t, err)
	file, err := img.ConfigFile()
	require.NoError(t, err)
	config := file.Config
	config.User = "0"
	img, err = mutate.Config(img, config)
	require.NoError(t, err)
	require.NoError(t, env.Cluster.LoadImage(t.Context(), ref, img))
	return ref
}

// TestRefusals are what a namespace refuses: a quota's worth, and what its pod
// security level does not allow.
func TestRefusals(t *testing.T) {
	t.Parallel()
	env := kubetest.Full(t)
	image := helloImage(t, env)
	loose := runnerapi.AppSpec{Image: image, Security: &runnerapi.Security{AllowRoot: true}}
	for name, c := range map[string]struct {
		trouble
		prepare func(t *testing.T, ns string)
	}{
		"over-quota": {
			trouble{runnerapi.AppSpec{Image: image}, refusedPods, runnerapi.CauseQuotaExceeded, "quota none", "kubectl edit resourcequota none", false},
			func(t *testing.T, ns string) { noPods(t, env, ns) },
		},
		"set-over-quota": {
			trouble{
				runnerapi.AppSpec{Image: image, Type: runnerapi.TypeStatefulSet}, says(1, "FailedCreate"),
				runnerapi.CauseQuotaExceeded, "quota none", "kubectl edit resourcequota none", false,
			},
			func(t *testing.T, ns string) { noPods(t, env, ns) },
		},
		"too-loose": {
			trouble{loose, refusedPods, runnerapi.CauseAdmissionRefused, "violates PodSecurity", "pod-security.kubernetes.io/enforce", false},
			func(t *testing.T, ns string) {
				out, err := env.Cluster.Kubectl(t.Context(), "label", "namespace", ns, "pod-security.kubernetes.io/enforce=restricted")
				require.NoError(t, err, string(out))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := ownNamespace(t, env)
			e := startByEvents(t, env, ns)
			c.prepare(t, ns)
			seen := newSightings()
			seen.in(t, env, ns)
			seen.expect(name, c.cause, c.signal)
			deploy(t, e, key(ns, name), c.spec)
			checkTrouble(t, troubled(t, e, key(ns, name), c.trouble), c.trouble)
			seen.report(t, name)
		})
	}
}

// noPods is a quota that allows none.
func noPods(t *testing.T, env *kubetest.Env, ns string) *corev1.ResourceQuota {
	t.Helper()
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "none"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePods: mustParse("0")}},
	}
	require.NoError(t, env.Client.Create(t.Context(), quota))
	return quota
}

// pullSecret has the credentials of the cluster's private images.
func pullSecret(t *testing.T, env *kubetest.Env, ns, name string) {
	t.Helper()
	raw, err := json.Marshal(map[string]any{"auths": map[string]any{
		"apps.test": map[string]string{"username": cluster.PullUser, "password": cluster.PullPassword},
	}})
	require.NoError(t, err)
	require.NoError(t, env.Client.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Type: corev1.SecretTypeDockerConfigJson,
		Data: map[string][]byte{corev1.DockerConfigJsonKey: raw},
	}))
}
