package diagnose

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func crashed(code int32, lines string) *corev1.Pod {
	return pod(endedWith(corev1.ContainerStateTerminated{Reason: "Error", ExitCode: code, Message: lines}))
}

// changed is a pod with something else about it.
func changed(p *corev1.Pod, change func(*corev1.Pod)) *corev1.Pod {
	change(p)
	return p
}

// TestLastLines_NameCause has causes that the exit code alone does not tell.
func TestLastLines_NameCause(t *testing.T) {
	startError := func(message string) *corev1.Pod {
		return pod(endedWith(corev1.ContainerStateTerminated{Reason: "StartError", ExitCode: 128, Message: message}))
	}
	withInit := func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "migrate"}}
		p.Status.InitContainerStatuses = p.Status.ContainerStatuses
		p.Status.InitContainerStatuses[0].Name = "migrate"
		p.Status.ContainerStatuses = nil
	}
	for name, c := range map[string]struct {
		pod          *corev1.Pod
		cause        runnerapi.Cause
		message, fix string
	}{
		"other architecture, by the runtime": {startError(`exec /app: exec format error`), runnerapi.CauseBadCommand, "exec format error", "CPU architecture"},
		"other architecture, by the process": {crashed(255, "exec /app: exec format error\n"), runnerapi.CauseCrashLoop, "another CPU architecture", "kubernetes.io/arch"},
		"not executable":                     {startError(`exec: "/start.sh": permission denied: unknown`), runnerapi.CauseBadCommand, `exec: "/start.sh": permission denied`, "chmod +x"},
		"not executable, by the shell":       {crashed(126, ""), runnerapi.CauseCrashLoop, "exit code 126", "chmod +x"},
		"read-only file system":              {crashed(1, "starting\nopen /var/run/app.pid: read-only file system\n"), runnerapi.CauseCrashLoop, "read-only", "readOnlyRootFilesystem"},
		"read-only, Node.js":                 {crashed(1, "Error: EROFS: read-only file system, open '/x'"), runnerapi.CauseCrashLoop, "read-only", "emptyDir"},
		"privileged port":                    {crashed(1, "nginx: [emerg] bind() to 0.0.0.0:80 failed (13: Permission denied)"), runnerapi.CauseCrashLoop, "below 1024", "port of 1024 or above"},
		"privileged port, Go":                {crashed(1, "listen tcp :80: bind: permission denied"), runnerapi.CauseCrashLoop, "below 1024", "1024"},
		"a file of another user":             {crashed(1, "open /data/db: permission denied"), runnerapi.CauseCrashLoop, "may not read or write a file", "chown"},
		"an init container":                  {changed(crashed(3, "no database"), withInit), runnerapi.CauseCrashLoop, "init container migrate's process keeps ending", "logs"},
		"a sidecar": {changed(crashed(3, ""), func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "proxy"})
			p.Status.ContainerStatuses[0].Name = "proxy"
		}), runnerapi.CauseCrashLoop, "container proxy's process", "logs of container proxy"},
		"post start":         {pod(waits("PostStartHookError", `PostStart handler error: command 'nope' exited with 1`)), runnerapi.CauseBadCommand, "postStart hook", "lifecycle.postStart"},
		"no memory to begin": {startError("container init was OOM-killed (memory limit too low?)"), runnerapi.CauseOutOfMemory, "before its process began", "resources.limits.memory"},
		"a pull secret that is wrong": {changed(pod(waits("ErrImagePull", "401 Unauthorized")), func(p *corev1.Pod) {
			p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
		}), runnerapi.CauseImagePullDenied, "secret registry does not let it in", "dockerconfigjson"},
	} {
		t.Run(name, func(t *testing.T) {
			d := Find(Evidence{Pods: []*corev1.Pod{c.pod}, Now: now}).Diagnosis
			diagnosed(t, d, c.cause, c.message, c.fix)
		})
	}
}

func TestLastLines_KeepsCause(t *testing.T) {
	trace := "panic: no database\n" + strings.Repeat("goroutine\n", 20)
	assert.Equal(t, "panic: no database", lastLines(trace)[0])
	assert.Len(t, lastLines(trace), maxLines)
	assert.Equal(t, "goroutine", lastLines(strings.Repeat("goroutine\n", 20))[0])
	assert.Equal(t, "first", lastLines("first\nerror: it broke\n")[0])
}

// TestScheduling_NoScheduler is of pods that no event speaks of.
func TestScheduling_NoScheduler(t *testing.T) {
	pending := func(age time.Duration, change func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-abc", UID: "1", CreationTimestamp: ago(age)}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
		p.Spec.SchedulerName = corev1.DefaultSchedulerName
		change(p)
		return p
	}
	gates := func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/quota"}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated}}
	}
	for name, c := range map[string]struct {
		change  func(*corev1.Pod)
		cause   runnerapi.Cause
		message string
	}{
		"gates":             {gates, runnerapi.CauseUnschedulable, "scheduling gates example.com/quota"},
		"another scheduler": {func(p *corev1.Pod) { p.Spec.SchedulerName = "volcano" }, runnerapi.CauseUnschedulable, "no scheduler named volcano"},
		"no scheduler":      {func(*corev1.Pod) {}, runnerapi.CauseUnschedulable, "scheduler has not looked"},
	} {
		t.Run(name, func(t *testing.T) {
			find := func(age time.Duration) Finding {
				return Find(Evidence{Pods: []*corev1.Pod{pending(age, c.change)}, Now: now})
			}
			young := find(placedBy - time.Second)
			assert.Nil(t, young.Diagnosis)
			assert.Equal(t, time.Second, young.Recheck)
			d := find(placedBy).Diagnosis
			diagnosed(t, d, c.cause, c.message)
		})
	}
}

func TestScheduling_NamesLargestNode(t *testing.T) {
	p := unscheduled("0/2 nodes are available: 2 Insufficient cpu.", 0)
	p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("900")}
	require.True(t, WantsTaints(nil, []*corev1.Pod{p}))
	node := func(name, cpu string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}
	}
	d := Find(Evidence{Pods: []*corev1.Pod{p}, Tainted: []*corev1.Node{node("small", "2"), node("large", "8")}, Now: now}).Diagnosis
	assert.Contains(t, d.Message, "2 Insufficient cpu; it asks for 900 of cpu, and the largest node, large, has 8")
	d = Find(Evidence{Pods: []*corev1.Pod{p}, Tainted: []*corev1.Node{node("vast", "1000")}, Now: now}).Diagnosis
	assert.NotContains(t, d.Message, "largest", "it is only full")
}

func TestEvicted(t *testing.T) {
	evictedPod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-a", CreationTimestamp: ago(time.Minute)}, Spec: corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "The node was low on resource: memory."},
	}
	d := Find(Evidence{Pods: []*corev1.Pod{evictedPod}, Now: now}).Diagnosis
	diagnosed(t, d, runnerapi.CauseEvicted, "node n1 evicted pod web-a: The node was low on resource: memory.")
	next := upFor(40*time.Second, nil)
	next.CreationTimestamp = ago(50 * time.Second)
	assert.Nil(t, Find(Evidence{Pods: []*corev1.Pod{evictedPod, next}, Now: now}).Diagnosis, "another one has its place")

	preempted := evictedPod.DeepCopy()
	preempted.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler, Message: "default-scheduler: preempting",
	}}}
	d = Find(Evidence{Pods: []*corev1.Pod{preempted}, Now: now}).Diagnosis
	require.NotNil(t, d)
	assert.Contains(t, d.Message, "was preempted on node n1")
	assert.Contains(t, d.Fix, "priority class")
}

// TestInitContainer_Hangs expects the container's last line, and a deadline for every type of
// workload.
func TestInitContainer_Hangs(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-0", UID: "1", CreationTimestamp: ago(time.Minute)}}
	p.Spec.NodeName = "n1"
	p.Spec.InitContainers, p.Status.Phase = []corev1.Container{{Name: "wait"}}, corev1.PodPending
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: "wait", Started: new(true), // the kubelet says so of whatever runs
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(initIn)}},
	}}
	require.Equal(t, "wait", WantsInitLog(p, now))
	assert.Empty(t, WantsInitLog(p, now.Add(-time.Second)))
	ev := Evidence{
		Spec: runnerapi.AppSpec{Type: runnerapi.TypeStatefulSet}, Pods: []*corev1.Pod{p}, Now: now,
		Init: map[types.UID]InitLog{"1": {"wait", "resolving db\nwaiting for db:5432\n"}},
	}
	f := Find(ev)
	assert.Nil(t, f.Diagnosis)
	assert.Contains(t, f.Initializing, `init container wait of pod web-0 to end`)
	assert.Contains(t, f.Initializing, `its last line: "waiting for db:5432"`)
	assert.Equal(t, []string{"resolving db", "waiting for db:5432"}, f.LastLines)
	ev.Init["1"] = InitLog{"wait", strings.Repeat("still waiting\n", 20)}
	assert.Len(t, Find(ev).LastLines, maxLines, "as many as of a crash")
	ev.Init["1"] = InitLog{"wait", "waiting for db:5432\n"}
	ev.Spec.ProgressDeadline = new(int32(60))
	d := Find(ev).Diagnosis
	diagnosed(t, d, runnerapi.CauseDeadlinePassed, "container wait: an init container that has not ended")
	assert.Equal(t, []string{"waiting for db:5432"}, d.LastLines)
	p.Spec.InitContainers[0].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	assert.Empty(t, WantsInitLog(p, now), "a sidecar is meant to run")
}

func TestProbe_CPUThrottled(t *testing.T) {
	p := upFor(time.Minute, func(c *corev1.Container) {
		c.ReadinessProbe = probeOf(0, 1, 1)
		c.Resources.Limits = corev1.ResourceList{"cpu": resource.MustParse("50m")}
	})
	p.Status.ContainerStatuses[0].Ready, p.Status.Conditions = false, nil
	late := ProbeFailures{Readiness: {Answer: "Get \"http://10.0.0.1\": context deadline exceeded", Time: now, First: now}}
	d := Find(Evidence{Pods: []*corev1.Pod{p}, Probes: map[types.UID]ProbeFailures{p.UID: late}, Now: now}).Diagnosis
	require.NotNil(t, d)
	assert.Contains(t, d.Message, "held to 50m of a CPU")
	assert.Contains(t, d.Fix, "raise resources.limits.cpu")
}

// TestAdmission_NamesRefuser is of refusals by others than the API server.
func TestAdmission_NamesRefuser(t *testing.T) {
	const outage = `Internal error occurred: failed calling webhook "guard.example.com": failed to call webhook: Post "https://guard.svc:443/?timeout=10s": no endpoints available`
	const denial = `deployments.apps "web" is forbidden: ValidatingAdmissionPolicy 'no-latest' with binding 'b' denied request: no latest`
	for message, fix := range map[string]string{outage: "bring webhook guard.example.com back", denial: "what policy no-latest names"} {
		assert.True(t, FromPolicy(message))
		rs := &appsv1.ReplicaSet{Status: appsv1.ReplicaSetStatus{Conditions: []appsv1.ReplicaSetCondition{{
			Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: message,
		}}}}
		d := Find(Evidence{ReplicaSet: rs, Now: now}).Diagnosis
		assert.Equal(t, runnerapi.CauseAdmissionRefused, d.Cause)
		assert.Contains(t, d.Fix, fix)
	}
	assert.False(t, FromPolicy(`Deployment.apps "web" is invalid: spec.replicas: Invalid value: -1`))
}

// TestLastLines_UsageHidesError: what follows the line that says why is longer than what is shown.
func TestLastLines_UsageHidesError(t *testing.T) {
	usage := "Usage:\n  server [flags]\n\nFlags:\n" + strings.Repeat("      --flag string   what it does\n", 20) + "      --error-log string   where errors go\n" + strings.Repeat("      --more\n", 20)
	lines := lastLines("starting\nError: unknown flag: --prot\n" + usage)
	assert.Equal(t, []string{"Error: unknown flag: --prot", gap, "      --error-log string   where errors go", gap}, lines[:4])
	assert.Len(t, lines, maxLines)
	assert.Equal(t, "      --more", lines[maxLines-1])
	assert.Equal(t, "java.lang.NullPointerException", lastLines("java.lang.NullPointerException\n" + strings.Repeat("\tat x\n", 30))[0])
	assert.NotContains(t, lastLines(strings.Repeat("error\n", maxLines)), gap, "all lines are shown")
}
