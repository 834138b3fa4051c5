package diagnose

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

var now = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

const testImage = "registry.example.com/shop/web:1.4"

// pod is one whose only container has this status.
func pod(status corev1.ContainerStatus) *corev1.Pod {
	status.Name = "web"
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-abc", UID: "1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: testImage}}},
		Status:     corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{status}},
	}
}

// unscheduled is a pod that no node takes since this long.
func unscheduled(message string, since time.Duration) *corev1.Pod {
	p := pod(corev1.ContainerStatus{})
	p.Status.ContainerStatuses = nil
	p.Status.Conditions = []corev1.PodCondition{{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message, LastTransitionTime: ago(since),
	}}
	return p
}

// up is a container that has run for this long, and is ready.
func up(since time.Duration) corev1.ContainerStatus {
	return corev1.ContainerStatus{Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(since)}}}
}

func waits(reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
}

func endedWith(end corev1.ContainerStateTerminated) corev1.ContainerStatus {
	if end.FinishedAt.IsZero() {
		end.StartedAt, end.FinishedAt = ago(3*time.Second), ago(2*time.Second)
	}
	return corev1.ContainerStatus{
		RestartCount: 2, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
		LastTerminationState: corev1.ContainerState{Terminated: &end},
	}
}

// TestDiagnose_Pods has statuses as kubelets of several versions and runtimes report them.
func TestDiagnose_Pods(t *testing.T) {
	for name, c := range map[string]struct {
		status  corev1.ContainerStatus
		limit   string
		cause   runnerapi.Cause
		message string
		fix     string
		lines   []string
	}{
		"image not found, containerd": {
			status: waits("ErrImagePull", `rpc error: code = NotFound desc = failed to pull and unpack image "registry.example.com/shop/web:1.4": failed to resolve reference "registry.example.com/shop/web:1.4": registry.example.com/shop/web:1.4: not found`),
			cause:  runnerapi.CauseImageNotFound, message: testImage + " does not exist", fix: "name and tag",
		},
		"image not found, back-off of a new kubelet": {
			status: waits("ImagePullBackOff", `Back-off pulling image "registry.example.com/shop/web:1.4": ErrImagePull: rpc error: code = NotFound desc = failed to pull and unpack image: not found`),
			cause:  runnerapi.CauseImageNotFound, message: testImage, fix: "name and tag",
		},
		"image not found, CRI-O": {
			status: waits("ErrImagePull", `reading manifest 1.4 in registry.example.com/shop/web: manifest unknown`),
			cause:  runnerapi.CauseImageNotFound, message: testImage, fix: "name and tag",
		},
		"Docker Hub without access": {
			status: waits("ErrImagePull", `failed to pull and unpack image "docker.io/shop/web:1": failed to resolve reference: pull access denied, repository does not exist or may require authorization: server message: insufficient_scope: authorization failed`),
			cause:  runnerapi.CauseImagePullDenied, message: "wants credentials", fix: "imagePullSecrets",
		},
		"403": {
			status: waits("ErrImagePull", `failed to authorize: failed to fetch oauth token: unexpected status from GET request to https://registry.example.com/token: 403 Forbidden`),
			cause:  runnerapi.CauseImagePullDenied, message: "wants credentials", fix: "dockerconfigjson",
		},
		"other architecture": {
			status: waits("ErrImagePull", `no match for platform in manifest: not found`),
			cause:  runnerapi.CauseImagePullFailed, message: "CPU architecture", fix: "--platform",
		},
		"registry down": {
			status: waits("ErrImagePull", `dial tcp 10.0.0.9:443: connect: connection refused`),
			cause:  runnerapi.CauseImagePullFailed, message: "does not answer", fix: "curl",
		},
		"registry unknown": {
			status: waits("ErrImagePull", `dial tcp: lookup registry.example.com on 10.96.0.10:53: no such host`),
			cause:  runnerapi.CauseImagePullFailed, message: "does not resolve", fix: "DNS",
		},
		"registry without trust": {
			status: waits("ErrImagePull", `tls: failed to verify certificate: x509: certificate signed by unknown authority`),
			cause:  runnerapi.CauseImagePullFailed, message: "TLS", fix: "CA",
		},
		"rate limit": {
			status: waits("ErrImagePull", `429 Too Many Requests - Server message: toomanyrequests: You have reached your pull rate limit`),
			cause:  runnerapi.CauseImagePullFailed, message: "rate limit", fix: "account",
		},
		"a new way to fail": {
			status: waits("ErrImagePull", "the whale is ill"),
			cause:  runnerapi.CauseImagePullFailed, message: "the whale is ill", fix: "registry",
		},
		"invalid name": {
			status: waits("InvalidImageName", `Failed to apply default image tag`),
			cause:  runnerapi.CauseInvalidImage, message: "not an image reference", fix: "registry/repository:tag",
		},
		"missing secret": {
			status: waits("CreateContainerConfigError", `secret "db" not found`),
			cause:  runnerapi.CauseMissingSecret, message: `secret "db"`, fix: `create secret "db" in namespace shop`,
		},
		"missing config map": {
			status: waits("CreateContainerConfigError", `configmap "settings" not found`),
			cause:  runnerapi.CauseMissingConfigMap, message: `"settings"`, fix: `create config map "settings"`,
		},
		"missing key of a secret": {
			status: waits("CreateContainerConfigError", `couldn't find key url in Secret shop/db`),
			cause:  runnerapi.CauseMissingKey, message: `secret "db" has no key "url"`, fix: `add key "url"`,
		},
		"missing key of a config map": {
			status: waits("CreateContainerConfigError", `couldn't find key mode in ConfigMap shop/settings`),
			cause:  runnerapi.CauseMissingKey, message: `config map "settings" has no key "mode"`, fix: "add key",
		},
		"root": {
			status: waits("CreateContainerConfigError", `container has runAsNonRoot and image will run as root (pod: "web-abc_shop(1)", container: web)`),
			cause:  runnerapi.CauseRunsAsRoot, message: testImage + " runs as root", fix: "USER",
		},
		"named user": {
			status: waits("CreateContainerConfigError", `container has runAsNonRoot and image has non-numeric user (nginx), cannot verify user is non-root`),
			cause:  runnerapi.CauseRunsAsRoot, message: "names its user", fix: "number",
		},
		"no such command": {
			status: endedWith(corev1.ContainerStateTerminated{Reason: "StartError", ExitCode: 128, Message: `failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: error during container init: exec: "/bin/serve": stat /bin/serve: no such file or directory`}),
			cause:  runnerapi.CauseBadCommand, message: `exec: "/bin/serve"`, fix: "command and args",
		},
		"command not in PATH": {
			status: waits("RunContainerError", `failed to start container: exec: "serve": executable file not found in $PATH: unknown`),
			cause:  runnerapi.CauseBadCommand, message: `"serve": executable file not found`, fix: "command and args",
		},
		"crash loop": {
			status: endedWith(corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 3, Message: "starting\ncannot reach the database\n"}),
			cause:  runnerapi.CauseCrashLoop, message: "exit code 3", fix: "logs", lines: []string{"starting", "cannot reach the database"},
		},
		"ends by itself": {
			status: endedWith(corev1.ContainerStateTerminated{Reason: "Completed"}),
			cause:  runnerapi.CauseCrashLoop, message: "exit code 0", fix: "foreground",
		},
		"out of memory": {
			status: endedWith(corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}), limit: "64Mi",
			cause: runnerapi.CauseOutOfMemory, message: "limit of 64Mi", fix: "resources.limits.memory",
		},
		"out of the node's memory": {
			status: endedWith(corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}),
			cause:  runnerapi.CauseOutOfMemory, message: "node ran out of memory", fix: "resources.requests.memory",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := pod(c.status)
			if c.limit != "" {
				p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(c.limit)}
			}
			d := Find(Evidence{Pods: []*corev1.Pod{p}, Now: now}).Diagnosis
			diagnosed(t, d, c.cause, c.message, c.fix)
			assert.Equal(t, "pod/web-abc", d.Object)
			assert.Equal(t, "web", d.Container)
			assert.Equal(t, c.lines, d.LastLines)
		})
	}
}

func TestCrashLoop_BackOffKeepsCause(t *testing.T) {
	p := pod(waits("ErrImagePull", "manifest unknown"))
	first := Find(Evidence{Pods: []*corev1.Pod{p}, Now: now}).Diagnosis
	p = pod(waits("ImagePullBackOff", `Back-off pulling image "`+testImage+`"`))
	assert.Equal(t, first, Find(Evidence{Pods: []*corev1.Pod{p}, Now: now, Previous: first}).Diagnosis)
	assert.Equal(t, runnerapi.CauseImagePullFailed, Find(Evidence{Pods: []*corev1.Pod{p}, Now: now}).Diagnosis.Cause)
}

func TestImage_NameIsNoSignal(t *testing.T) {
	p := pod(waits("ErrImagePull", `pulling registry.example.com/denied:/not found:1: connection refused`))
	p.Spec.Containers[0].Image = "registry.example.com/denied:/not found:1"
	assert.Equal(t, runnerapi.CauseImagePullFailed, Find(Evidence{Pods: []*corev1.Pod{p}, Now: now}).Diagnosis.Cause)
}

// runs is a container that was restarted and runs again.
func runs(restarts int32, since, runBefore time.Duration) corev1.ContainerStatus {
	start := ago(since)
	return corev1.ContainerStatus{
		Ready: true, RestartCount: restarts, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: start}},
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 1, Reason: "Error", StartedAt: metav1.NewTime(start.Add(-runBefore)), FinishedAt: start,
		}},
	}
}

func TestCrashLoop_UpAgainIsNotCured(t *testing.T) {
	for name, c := range map[string]struct {
		status    corev1.ContainerStatus
		cause     runnerapi.Cause
		unsettled bool
		recheck   time.Duration
	}{
		"between two crashes":                {status: runs(4, 3*time.Second, time.Second), cause: runnerapi.CauseCrashLoop, recheck: 7 * time.Second},
		"as long as last time":               {status: runs(4, 30*time.Second, 30*time.Second), cause: runnerapi.CauseCrashLoop, recheck: 30 * time.Second},
		"twice as long as last time":         {status: runs(4, 61*time.Second, 30*time.Second)},
		"one restart":                        {status: runs(1, 3*time.Second, time.Hour), unsettled: true, recheck: 7 * time.Second},
		"one restart, a while ago":           {status: runs(1, 11*time.Second, time.Hour)},
		"a long run before is not an excuse": {status: runs(3, 11*time.Minute, time.Hour)},
	} {
		t.Run(name, func(t *testing.T) {
			f := Find(Evidence{Pods: []*corev1.Pod{pod(c.status)}, Now: now})
			if c.cause == "" {
				assert.Nil(t, f.Diagnosis)
			} else {
				require.NotNil(t, f.Diagnosis)
				assert.Equal(t, c.cause, f.Diagnosis.Cause)
			}
			assert.Equal(t, c.unsettled, f.Unsettled)
			assert.Equal(t, c.recheck, f.Recheck)
		})
	}
}

func TestCrashLoop_NotAfterFirstEnd(t *testing.T) {
	p := pod(corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}})
	f := Find(Evidence{Pods: []*corev1.Pod{p}, Now: now})
	assert.Nil(t, f.Diagnosis)
	assert.True(t, f.Unsettled)
}

func TestProbe_Readiness(t *testing.T) {
	status := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(20 * time.Second)}}}
	p := pod(status)
	p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(8080)}},
		PeriodSeconds: 5, FailureThreshold: 3, InitialDelaySeconds: 10,
	}
	ev := Evidence{Pods: []*corev1.Pod{p}, Now: now}
	f := Find(ev)
	assert.Nil(t, f.Diagnosis, "a slow start within its limits is not a failure")
	assert.Equal(t, 7*time.Second, f.Recheck)
	assert.False(t, WantsProbes(p, now))

	ev.Now = now.Add(7 * time.Second)
	assert.True(t, WantsProbes(p, ev.Now))
	kind, answer, ok := ParseProbeEvent("Readiness probe failed: HTTP probe failed with statuscode: 503")
	require.True(t, ok)
	ev.Probes = map[types.UID]ProbeFailures{"1": {kind: {Answer: answer, Time: now}}}
	d := Find(ev).Diagnosis
	require.NotNil(t, d)
	assert.Equal(t, runnerapi.CauseProbeFailing, d.Cause)
	assert.Equal(t, "the readiness probe (GET /ready on port 8080) fails: HTTP probe failed with statuscode: 503; the pod gets no traffic", d.Message)

	p.Status.ContainerStatuses[0].Ready = true
	assert.Nil(t, Find(ev).Diagnosis)
}

// A kubelet ends a container because of its probe only after the last allowed failure of the probe.
func TestProbe_StartupBesideCrash(t *testing.T) {
	cause := func(run time.Duration) runnerapi.Cause {
		p := pod(corev1.ContainerStatus{
			RestartCount: 3, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2, StartedAt: ago(run), FinishedAt: ago(0)}},
		})
		p.Spec.Containers[0].StartupProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 60}
		failure := ProbeFailure{Answer: "connection refused", Time: now.Add(-time.Second), First: now.Add(-run)}
		d := Find(Evidence{Pods: []*corev1.Pod{p}, Now: now, Probes: map[types.UID]ProbeFailures{p.UID: {Startup: failure}}}).Diagnosis
		require.NotNil(t, d)
		return d.Cause
	}
	assert.Equal(t, runnerapi.CauseCrashLoop, cause(2*time.Second))
	assert.Equal(t, runnerapi.CauseProbeFailing, cause(60*time.Second))
}

// With a startup probe the readiness probe's time begins when that has succeeded.
func TestProbe_ReadinessAfterSlowStart(t *testing.T) {
	started := true
	p := pod(corev1.ContainerStatus{Started: &started, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(20 * time.Second)}}})
	c := &p.Spec.Containers[0]
	c.StartupProbe = &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 60}
	c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 5, FailureThreshold: 3}
	f := Find(Evidence{Pods: []*corev1.Pod{p}, Now: now})
	assert.Nil(t, f.Diagnosis, "it may have passed its startup probe this instant")
	assert.Equal(t, 57*time.Second, f.Recheck)
	assert.True(t, WantsProbes(p, now))

	failing := func(first, last time.Duration) Finding {
		probes := map[types.UID]ProbeFailures{"1": {Readiness: {Answer: "statuscode: 503", First: now.Add(-first), Time: now.Add(-last)}}}
		return Find(Evidence{Pods: []*corev1.Pod{p}, Probes: probes, Now: now})
	}
	assert.Equal(t, Finding{Recheck: 10 * time.Second}, failing(2*time.Second, 0))
	assert.NotNil(t, failing(13*time.Second, time.Second).Diagnosis, "it failed at 0, 5 and 10 s, and there was time to tell")
	assert.Nil(t, failing(time.Hour, 0).Diagnosis, "a run before failed too, so that says nothing")
	p.Status.ContainerStatuses[0].Ready = true
	assert.False(t, WantsProbes(p, now))
}

func TestProbe_KilledIsNoCrash(t *testing.T) {
	p := pod(endedWith(corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 137, StartedAt: ago(60 * time.Second), FinishedAt: ago(10 * time.Second)}))
	p.Spec.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(80)}}}
	ev := Evidence{Pods: []*corev1.Pod{p}, Now: now}
	assert.Equal(t, runnerapi.CauseCrashLoop, Find(ev).Diagnosis.Cause, "without a failure of the probe it is one")
	ev.Probes = map[types.UID]ProbeFailures{"1": {Liveness: {Answer: "dial tcp 10.0.0.1:80: connect: connection refused", Time: now.Add(-12 * time.Second)}}}
	d := Find(ev).Diagnosis
	assert.Equal(t, runnerapi.CauseProbeFailing, d.Cause)
	assert.Contains(t, d.Message, "liveness probe (TCP port 80) fails: dial tcp")
	ev.Probes["1"][Liveness] = ProbeFailure{First: now.Add(-12 * time.Second), Time: now}
	assert.Equal(t, runnerapi.CauseProbeFailing, Find(ev).Diagnosis.Cause, "it fails again in the next run")
	ev.Probes["1"][Liveness] = ProbeFailure{First: now, Time: now}
	assert.Equal(t, runnerapi.CauseCrashLoop, Find(ev).Diagnosis.Cause, "a failure in the next run did not kill this one")
	ev.Probes["1"][Liveness] = ProbeFailure{Time: now.Add(-time.Hour)}
	assert.Equal(t, runnerapi.CauseCrashLoop, Find(ev).Diagnosis.Cause, "an old failure did not kill this run")
	ev.Previous = d.DeepCopy()
	assert.Equal(t, ev.Previous, Find(ev).Diagnosis, "a kubelet that tells no more of the same end")
	p.Status.ContainerStatuses[0].LastTerminationState.Terminated.ExitCode = 3
	assert.Equal(t, runnerapi.CauseCrashLoop, Find(ev).Diagnosis.Cause, "another end")
}

func TestScheduling_Unschedulable(t *testing.T) {
	for message, fix := range map[string]string{
		"0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: 1 No preemption victims found.": "ask for less in resources.requests.cpu (now 4 per pod)",
		"0/2 nodes are available: 1 Insufficient memory, 1 node(s) had untolerated taint {dedicated: gpu}. preemption: not helpful.":                    "remove the taint dedicated: gpu",
		"0/1 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: }.":                                                    "bring the node back",
		"0/1 nodes are available: 1 node(s) had untolerated taint(s) {node.kubernetes.io/disk-pressure: }.":                                             "free disk space",
		"0/1 nodes are available: 1 node(s) were unschedulable.":                                                                                        "uncordon",
		"0/1 nodes are available: 1 Too many pods.":                                                                                                     "limit of pods",
		"no nodes available to schedule pods":                                                                                                           "add a node",
		"0/3 nodes are available: 3 node(s) didn't match pod topology spread constraints.":                                                              "spread.when",
		"0/3 nodes are available: 3 node(s) did a new thing.":                                                                                           "kubectl describe nodes",
	} {
		p := unscheduled(message, 0)
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
		d := Find(Evidence{Pods: []*corev1.Pod{p}, Now: now}).Diagnosis
		require.NotNil(t, d, message)
		assert.Equal(t, runnerapi.CauseUnschedulable, d.Cause)
		assert.Contains(t, d.Fix, fix)
		checkFix(t, d)
		assert.NotContains(t, d.Message, "preemption")
		assert.NotContains(t, d.Message, "deallocate")
	}
}

func TestAdmission_RefusedPods(t *testing.T) {
	for message, want := range map[string]runnerapi.Diagnosis{
		`pods "web-abc" is forbidden: exceeded quota: small, requested: pods=1, used: pods=2, limited: pods=2`: {
			Cause: runnerapi.CauseQuotaExceeded, Message: "quota small of the namespace allows no more pods of this App: requested: pods=1, used: pods=2, limited: pods=2",
			Fix: "raise quota small",
		},
		`pods "web-abc" is forbidden: failed quota: small: must specify limits.memory for: web`: {
			Cause: runnerapi.CauseQuotaExceeded, Message: "must specify limits.memory", Fix: "in resources",
		},
		`pods "web-abc" is forbidden: violates PodSecurity "restricted:latest": unrestricted capabilities`: {
			Cause: runnerapi.CauseAdmissionRefused, Message: `violates PodSecurity`, Fix: "pod security level",
		},
		`pods "web-abc" is forbidden: ValidatingAdmissionPolicy 'signed' with binding 'all' denied request: images must be signed`: {
			Cause: runnerapi.CauseAdmissionRefused, Message: "images must be signed", Fix: "kubectl describe validatingadmissionpolicy signed",
		},
		`admission webhook "policy.example.com" denied the request: images must be signed`: {
			Cause: runnerapi.CauseAdmissionRefused, Message: "images must be signed", Fix: "policy policy.example.com",
		},
		`pods "web-abc" is forbidden: [maximum memory usage per Container is 1Gi, but limit is 2Gi]`: {
			Cause: runnerapi.CauseAdmissionRefused, Message: "maximum memory usage", Fix: "LimitRange",
		},
	} {
		rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web-1"}, Status: appsv1.ReplicaSetStatus{
			Conditions: []appsv1.ReplicaSetCondition{{
				Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: message,
			}},
		}}
		d := Find(Evidence{ReplicaSet: rs, Now: now}).Diagnosis
		diagnosed(t, d, want.Cause, want.Message, want.Fix)
		assert.NotContains(t, d.Message, "web-abc", "the name of a pod that never was helps nobody")
	}
}

func TestRollout_Deadline(t *testing.T) {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Status: appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{
		Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded",
	}}}}
	p := pod(waits("ContainerCreating", ""))
	got := Find(Evidence{Deployment: d, Pods: []*corev1.Pod{p}, Now: now}).Diagnosis
	diagnosed(t, got, runnerapi.CauseDeadlinePassed, "600 s; pod web-abc: container web: ContainerCreating")

	p = pod(waits("ErrImagePull", "not found"))
	got = Find(Evidence{Deployment: d, Pods: []*corev1.Pod{p}, Now: now}).Diagnosis
	assert.Equal(t, runnerapi.CauseImageNotFound, got.Cause, "a cause says more than a deadline")
}

func TestDiagnose_HealthyPods(t *testing.T) {
	fine := pod(up(time.Second))
	starting := pod(waits("ContainerCreating", ""))
	dying := pod(waits("ErrImagePull", "not found"))
	at := ago(0)
	dying.DeletionTimestamp = &at
	evicted := pod(endedWith(corev1.ContainerStateTerminated{Reason: "OOMKilled"}))
	evicted.Status.Phase = corev1.PodFailed
	assert.Equal(t, Finding{}, Find(Evidence{Pods: []*corev1.Pod{fine, starting, dying, evicted}, Now: now}))
}

func TestLastLines_Bounded(t *testing.T) {
	long := make([]byte, 5000)
	for i := range long {
		long[i] = 'x'
	}
	lines := lastLines("a\nb\n" + string(long) + "\nc\r\n1\n2\n3\n4\n5\n6\n7\n8\n")
	require.Len(t, lines, maxLines)
	assert.Equal(t, "8", lines[maxLines-1])
	assert.Equal(t, "c", lines[1])
	assert.LessOrEqual(t, len(lines[0]), maxLine+len("…"))
}

func FuzzParseProbeEvent(f *testing.F) {
	f.Add("Readiness probe failed: HTTP probe failed with statuscode: 500")
	f.Add("Liveness probe errored: x")
	f.Add("")
	f.Fuzz(func(t *testing.T, message string) {
		kind, answer, ok := ParseProbeEvent(message)
		if ok != (kind != "") || len(answer) > maxMessage+len("…") {
			t.Fatalf("%q: %q %q %v", message, kind, answer, ok)
		}
	})
}

// names is what a fix has to name: a command, or a field of the App's spec.
var names = regexp.MustCompile(`\b(kubectl|docker|curl|logs|restart|image|imagePullSecrets|imagePullPolicy|command|args|ports|type Job|` +
	`replicas|resources|probes\.|volumes|schedule\.|schedulerName|scaleTargetRef|ingress\.|spread\.|security|job\.|App's reference)\b|\bUSER `)

// diagnosed asserts what a diagnosis says, and that its fix is one.
func diagnosed(t *testing.T, d *runnerapi.Diagnosis, cause runnerapi.Cause, message string, fix ...string) {
	t.Helper()
	require.NotNil(t, d, message)
	assert.Equal(t, cause, d.Cause, d.Message)
	assert.Contains(t, d.Message, message)
	for _, words := range fix {
		assert.Contains(t, d.Fix, words)
	}
	checkFix(t, d)
}

// checkFix says whether a fix tells where to lay hands on.
func checkFix(t *testing.T, d *runnerapi.Diagnosis) {
	t.Helper()
	assert.Regexp(t, names, d.Fix, "a fix names a command or a field")
	assert.NotEmpty(t, d.Object, "the object that the signal came from")
}
