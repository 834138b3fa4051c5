package workloadhealth_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/internal/app"
	"github.com/pipeops/pipeops-vm-agent/internal/workloadhealth"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

const patience = 5 * time.Minute

// template is that of a pod which may run in a namespace of the restricted level.
func template(restart, image string, args ...string) string {
	return fmt.Sprintf(`{metadata: {labels: {app: NAME}}, spec: {restartPolicy: %s,
  securityContext: {runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}},
  containers: [{name: web, image: %q, args: [%s],
    securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]}}`, restart, image, strings.Join(args, ", "))
}

// barePod is a pod of a template.
func barePod(template string) string {
	return strings.Replace(template, "{", "{apiVersion: v1, kind: Pod, ", 1)
}

func object(t *testing.T, ns, name, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(strings.ReplaceAll(text, "NAME", name)), &u.Object))
	u.SetNamespace(ns)
	u.SetName(name)
	return u
}

// TestCheck_AnyWorkload has exactly the agent's rights.
func TestCheck_AnyWorkload(t *testing.T) {
	env := kubetest.Full(t)
	ns := env.Namespace(t)
	image, err := env.Cluster.LoadApp(t.Context(), "hello")
	require.NoError(t, err)
	pods := "spec: {selector: {matchLabels: {app: NAME}}, template: " + template("Always", image) + "}"
	crashing := "spec: {selector: {matchLabels: {app: NAME}}, template: " + template("Always", image, "-crash-after=50ms", "-exit-code=3") + "}"
	deployment, set := "apiVersion: apps/v1\nkind: Deployment\n", "apiVersion: apps/v1\nkind: StatefulSet\n"
	job := "apiVersion: batch/v1\nkind: Job\nspec: {backoffLimit: 0, template: " + template("Never", image, "-crash-after=50ms", "-exit-code=7") + "}"
	retried := strings.NewReplacer("backoffLimit: 0", "backoffLimit: 100", "restartPolicy: Never", "restartPolicy: OnFailure").Replace(job)
	patient := app.StabilizationFor(time.Second)
	patient.Metrics = time.Second
	c := workloadhealth.New(env.Agent, patient)
	scaler := func(version, of, metrics string) string {
		return "apiVersion: autoscaling/" + version + "\nkind: HorizontalPodAutoscaler\nspec: {maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: " +
			of + "}, " + metrics + "}"
	}
	cases := map[string]struct {
		text    string
		state   runnerapi.ObjectState
		cause   runnerapi.Cause
		message string
	}{
		"good":     {deployment + pods, runnerapi.ObjectReady, "", ""},
		"other":    {deployment + pods, runnerapi.ObjectReady, "", ""},
		"crashing": {deployment + crashing, runnerapi.ObjectFailed, runnerapi.CauseCrashLoop, "exit code 3"},
		"daemons":  {"apiVersion: apps/v1\nkind: DaemonSet\n" + crashing, runnerapi.ObjectFailed, runnerapi.CauseCrashLoop, "exit code 3"},
		"absent": {
			set + strings.Replace(pods, image, "apps.test/no-such-image:1", 1), runnerapi.ObjectFailed, runnerapi.CauseImageNotFound, "does not exist",
		},
		"clash":    {deployment + strings.Replace(crashing, "-crash-after=50ms, -exit-code=3", "-also-listen=:8080", 1), runnerapi.ObjectFailed, runnerapi.CausePortClash, "8080"},
		"replicas": {"apiVersion: apps/v1\nkind: ReplicaSet\n" + crashing, runnerapi.ObjectFailed, runnerapi.CauseCrashLoop, "exit code 3"},
		"bare":     {barePod(template("Never", image, "-crash-after=50ms", "-exit-code=5")), runnerapi.ObjectFailed, runnerapi.CauseJobFailed, "exit code 5"},
		"unmounted": {
			barePod(strings.NewReplacer("containers:", "volumes: [{name: v, secret: {secretName: nowhere}}], containers:",
				"args:", "volumeMounts: [{name: v, mountPath: /v}], args:").Replace(template("Always", image))),
			runnerapi.ObjectFailed, runnerapi.CauseMissingSecret, "nowhere",
		},
		"silent": {
			deployment + strings.Replace(pods, "args:", "ports: [{containerPort: 9999}], args:", 1),
			runnerapi.ObjectFailed, runnerapi.CausePortNotListening, "nothing listens at TCP port 9999, which the workload declares",
		},
		"idle": {
			deployment + strings.Replace(pods, "args:", "ports: [{containerPort: 9102}, {containerPort: 8080}], args:", 1),
			runnerapi.ObjectReady, "", "warning: nothing listens at TCP port 9102",
		},
		"trying": {retried, runnerapi.ObjectInProgress, "", "another try"},
		"never": {
			"apiVersion: batch/v1\nkind: CronJob\nspec: {schedule: 0 0 31 2 *, jobTemplate: {spec: {template: " + template("Never", image) + "}}}",
			runnerapi.ObjectFailed, runnerapi.CauseNeverDue, "no time matches its schedule",
		},
		"scaler": { // of pods that ask for no CPU
			scaler("v2", "good", "metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]"),
			runnerapi.ObjectFailed, runnerapi.CauseAutoscalingFailed, "requests no cpu",
		},
		"old-scaler": {
			scaler("v1", "other", "targetCPUUtilizationPercentage: 50"), runnerapi.ObjectFailed, runnerapi.CauseAutoscalingFailed, "requests no cpu",
		},
		"failing": {job, runnerapi.ObjectFailed, runnerapi.CauseJobFailed, "exit code 7"},
	}
	for name, tc := range cases {
		require.NoError(t, env.Client.Create(t.Context(), object(t, ns, name, tc.text)), name)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var r workloadhealth.Report
			require.Eventually(t, func() bool {
				u := object(t, ns, name, tc.text)
				if env.Client.Get(t.Context(), client.ObjectKeyFromObject(u), u) != nil {
					return false
				}
				var runs bool
				r, runs, err = c.Check(t.Context(), u)
				return err == nil && runs && r.State == tc.state && strings.Contains(r.Message, tc.message)
			}, patience, 100*time.Millisecond, "%+v %v", &r, &err)
			if tc.cause == "" {
				return
			}
			require.NotNil(t, r.Diagnosis)
			assert.Equal(t, tc.cause, r.Diagnosis.Cause)
			assert.Contains(t, r.Message, tc.message)
			assert.NotContains(t, r.Message+r.Diagnosis.Fix, "the App")
			if tc.cause == runnerapi.CauseCrashLoop || tc.cause == runnerapi.CauseJobFailed {
				assert.Contains(t, strings.Join(r.Diagnosis.LastLines, "\n"), "crash", "the log's last lines, which nothing asked the kubelet for")
			}
		})
	}
	_, runs, err := c.Check(t.Context(), object(t, ns, "x", "apiVersion: v1\nkind: ConfigMap\n"))
	assert.NoError(t, err)
	assert.False(t, runs)
}

func TestCheck_AppsOfSet(t *testing.T) {
	status := func(s string) *unstructured.Unstructured {
		u := object(t, "shop", "web", "apiVersion: pipeops.io/v1alpha1\nkind: App\nstatus: "+s)
		u.SetGeneration(2)
		return u
	}
	c := workloadhealth.New(nil, app.StabilizationFor(time.Second))
	for s, want := range map[string]runnerapi.ObjectState{
		"{phase: Healthy, observedGeneration: 2}":                                                         runnerapi.ObjectReady,
		"{phase: Healthy, observedGeneration: 1}":                                                         runnerapi.ObjectInProgress,
		"{phase: Failed, observedGeneration: 2, diagnosis: {cause: CrashLoop, message: it ends, fix: x}}": runnerapi.ObjectFailed,
		"{}": runnerapi.ObjectInProgress,
	} {
		r, runs, err := c.Check(t.Context(), status(s))
		require.NoError(t, err)
		assert.True(t, runs)
		assert.Equal(t, want, r.State, s)
	}
}
