package diagnose

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// upFor is a pod that runs and has been ready for this long.
func upFor(d time.Duration, probes func(*corev1.Container)) *corev1.Pod {
	p := pod(up(d))
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(d)}}
	if probes != nil {
		probes(&p.Spec.Containers[0])
	}
	return p
}

func probeOf(delay, period, threshold int32) *corev1.Probe {
	return &corev1.Probe{InitialDelaySeconds: delay, PeriodSeconds: period, FailureThreshold: threshold, TimeoutSeconds: 1}
}

// TestStabilization_HealthyNeedsStay uses the default stabilization of an agent.
func TestStabilization_HealthyNeedsStay(t *testing.T) {
	readiness := func(p *corev1.Probe) func(*corev1.Container) {
		return func(c *corev1.Container) { c.ReadinessProbe = p }
	}
	liveness := func(p *corev1.Probe) func(*corev1.Container) {
		return func(c *corev1.Container) { c.LivenessProbe = p }
	}
	for name, c := range map[string]struct {
		probes func(*corev1.Container)
		needs  time.Duration
	}{
		"no probes":              {nil, 30 * time.Second},
		"readiness":              {readiness(probeOf(0, 10, 3)), 30 * time.Second},
		"readiness, each second": {readiness(probeOf(0, 1, 3)), 10 * time.Second},
		"liveness":               {liveness(probeOf(0, 10, 3)), 31 * time.Second},
		"liveness that is late":  {liveness(probeOf(60, 10, 3)), 91 * time.Second},
		"liveness that may fail": {liveness(probeOf(60, 10, 60)), 5 * time.Minute},
		"liveness in 10 minutes": {liveness(probeOf(600, 10, 3)), 631 * time.Second},
		"liveness once an hour":  {liveness(probeOf(0, 3600, 3)), time.Hour},
		"liveness in two hours":  {liveness(probeOf(7200, 10, 3)), time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			for up, settled := range map[time.Duration]bool{c.needs - time.Second: false, c.needs: true} {
				spec := runnerapi.AppSpec{Type: runnerapi.TypeStatefulSet, ProgressDeadline: new(int32(60))}
				f := Find(Evidence{Spec: spec, Pods: []*corev1.Pod{upFor(up, c.probes)}, Stabilization: DefaultStabilization, Now: now})
				assert.Nil(t, f.Diagnosis, "the deadline is for pods to become ready")
				assert.Equal(t, !settled, f.Unsettled, "up for %s", up)
				if !settled {
					assert.Equal(t, time.Second, f.Recheck)
					assert.Contains(t, f.Waiting, "stay ready for "+c.needs.String()+" without a restart, until 2026-05-04T12:00:01Z")
					late := "2026-05-04T12:00:01Z: the liveness probe of container web has to succeed once"
					assert.Equal(t, c.needs > DefaultStabilization.Most, strings.HasSuffix(f.Waiting, late), f.Waiting)
				}
			}
		})
	}
	young := []*corev1.Pod{upFor(time.Second, nil)}
	assert.False(t, Find(Evidence{Pods: young, Stabilization: DefaultStabilization, Now: now, Proven: true}).Unsettled, "a pod more of what is healthy")
	assert.False(t, Find(Evidence{Pods: young, Spec: runnerapi.AppSpec{Type: runnerapi.TypeJob}, Stabilization: DefaultStabilization, Now: now}).Unsettled)
	bare := Evidence{Pods: young, Spec: runnerapi.AppSpec{Type: runnerapi.TypeJob}, Bare: true, Stabilization: DefaultStabilization, Now: now}
	assert.True(t, Find(bare).Unsettled, "a pod without a controller may serve, and fail")
	ahead := Find(Evidence{Pods: []*corev1.Pod{upFor(-time.Hour, nil)}, Stabilization: DefaultStabilization, Now: now})
	assert.Equal(t, 30*time.Second, ahead.Recheck, "a node whose clock is ahead")
}

// TestStabilization_Flapping is of a container that ends and is started again, time and again.
func TestStabilization_Flapping(t *testing.T) {
	restarted := func(ran, up time.Duration, times int32) *corev1.Pod {
		p := upFor(up, nil)
		p.Status.StartTime = new(ago(up + ran*time.Duration(times)))
		s := &p.Status.ContainerStatuses[0]
		s.RestartCount = times
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: 1, StartedAt: ago(up + ran), FinishedAt: ago(up), Message: "no database\n",
		}
		return p
	}
	find := func(p *corev1.Pod) Finding {
		return Find(Evidence{Pods: []*corev1.Pod{p}, Stabilization: DefaultStabilization, Now: now})
	}
	for _, ran := range []time.Duration{3 * time.Second, 6 * time.Second, 12 * time.Second, time.Minute} {
		once := find(restarted(ran, ran-time.Second, 1))
		assert.Nil(t, once.Diagnosis, "one restart is not a loop")
		assert.True(t, once.Unsettled && once.Crashed, "but no stay")
		assert.Contains(t, once.Waiting, "to run without another restart")

		again := find(restarted(ran, ran-time.Second, 4))
		if assert.NotNil(t, again.Diagnosis, "between two crashes it is no other") {
			assert.Equal(t, runnerapi.CauseCrashLoop, again.Diagnosis.Cause)
			assert.Contains(t, again.Diagnosis.Message, "exit code 1; 4 restarts in ")
			assert.Equal(t, []string{"no database"}, again.Diagnosis.LastLines)
		}
		assert.Equal(t, ran >= minSettle, again.Flaps, ran)
		assert.Equal(t, ran < minSettle, again.Brief == 1, ran)
	}
	assert.Contains(t, find(restarted(time.Minute, time.Second, 4)).Diagnosis.Message, "; 4 restarts in 4 minutes")
	rare := find(restarted(24*time.Hour, 10*time.Second, 9))
	assert.Nil(t, rare.Diagnosis, "one crash a day is not a loop")
	assert.Equal(t, 20*time.Second, rare.Recheck)
	cured := find(restarted(time.Minute, 2*time.Minute, 4))
	assert.True(t, cured.Diagnosis == nil && !cured.Unsettled && !cured.Crashed)
}

func TestPod_WaitsFor(t *testing.T) {
	p := upFor(time.Second, nil)
	name, _ := WaitsFor(p)
	assert.Empty(t, name)
	p.Status.ContainerStatuses[0].Ready = false
	_, state := WaitsFor(p)
	assert.True(t, strings.HasPrefix(state, "runs"))
	p.Status.ContainerStatuses[0] = waits("ContainerCreating", "")
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{
		Name: "migrate", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(time.Second)}},
	}}
	name, state = WaitsFor(p)
	assert.Equal(t, "migrate", name)
	assert.Contains(t, state, "not ended")
}

// TestRejected_EndlessPods is of a ReplicaSet whose pods the kubelet refuses one after the other.
func TestRejected_EndlessPods(t *testing.T) {
	refused := func(n int, apart time.Duration) []*corev1.Pod {
		var all []*corev1.Pod
		for i := range n {
			p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1"}}
			p.Name, p.CreationTimestamp = "web-"+string(rune('a'+i)), ago(time.Duration(i)*apart)
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "SysctlForbidden", Message: `forbidden sysctl: "kernel.msgmax" not allowlisted`}
			all = append(all, p)
		}
		return all
	}
	rs := &appsv1.ReplicaSet{}
	f := Find(Evidence{ReplicaSet: rs, Pods: refused(manyRejected, time.Second), Now: now})
	assert.True(t, f.Stop)
	assert.Equal(t, runnerapi.CauseAdmissionRefused, f.Diagnosis.Cause)
	assert.Equal(t, "pod/web-a", f.Diagnosis.Object)
	assert.Contains(t, f.Diagnosis.Message, `node n1 refuses the pods as soon as they are placed: SysctlForbidden: forbidden sysctl: "kernel.msgmax"`)
	assert.Contains(t, f.Diagnosis.Fix, "allowed-unsafe-sysctls")
	assert.False(t, Find(Evidence{ReplicaSet: rs, Pods: refused(manyRejected-1, time.Second), Now: now}).Stop)
	assert.False(t, Find(Evidence{ReplicaSet: rs, Pods: refused(manyRejected, time.Minute), Now: now}).Stop, "one a minute is not a loop")
	assert.Contains(t, f.Halted().Message, "after 5 pods the agent stopped the rollout")
	assert.NotContains(t, f.Diagnosis.Message, "stopped", "it is not yet")

	many := &appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(5))}}
	assert.False(t, Find(Evidence{ReplicaSet: many, Pods: refused(manyRejected, time.Second), Now: now}).Stop, "all of them, once")
	assert.True(t, Find(Evidence{ReplicaSet: many, Pods: refused(manyRejected+4, time.Second), Now: now}).Stop)

	spec := runnerapi.AppSpec{Type: runnerapi.TypeStatefulSet}
	f = Find(Evidence{Spec: spec, Pods: refused(1, 0), Recreated: manyRejected, Now: now})
	assert.True(t, f.Stop)
	f = Find(Evidence{Spec: spec, Pods: refused(1, 0), Recreated: 1, Now: now})
	assert.False(t, f.Stop)
	assert.Equal(t, runnerapi.CauseAdmissionRefused, f.Diagnosis.Cause, "it is told all the same")
	spec.Type = runnerapi.TypeDaemonSet
	f = Find(Evidence{Spec: spec, Pods: refused(1, 0), Now: now})
	assert.False(t, f.Stop, "its controller waits longer each time")
	assert.Equal(t, runnerapi.CauseAdmissionRefused, f.Diagnosis.Cause)
}

// TestRejected_Runs has Jobs and bare pods.
func TestRejected_Runs(t *testing.T) {
	j := &batchv1.Job{}
	j.Name, j.UID = "once", "1"
	p := &corev1.Pod{Spec: corev1.PodSpec{NodeName: "n1"}}
	p.Name, p.OwnerReferences = "once-a", []metav1.OwnerReference{*metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job"))}
	p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "NodeAffinity", Message: "Pod was rejected: Predicate NodeAffinity failed"}
	spec := runnerapi.AppSpec{Type: runnerapi.TypeJob}
	f := Find(Evidence{Spec: spec, Job: j, Pods: []*corev1.Pod{p}, Now: now})
	assert.Nil(t, f.Diagnosis, "Kubernetes tries it again")
	assert.Contains(t, f.Waiting, "another try: node n1 refused pod once-a: NodeAffinity")
	j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: "BackoffLimitExceeded"}}
	j.Status.Failed = 3
	d := Find(Evidence{Spec: spec, Job: j, Pods: []*corev1.Pod{p}, Now: now}).Diagnosis
	assert.Equal(t, runnerapi.CauseAdmissionRefused, d.Cause)
	assert.Contains(t, d.Message, "the run failed after 3 tries: node n1 refuses")
	assert.Contains(t, d.Fix, "correct what sets nodeName")

	d = Find(Evidence{Spec: spec, Bare: true, Pods: []*corev1.Pod{p}, Now: now}).Diagnosis
	assert.Equal(t, runnerapi.CauseAdmissionRefused, d.Cause)
	p.Status.Reason = ""
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "c", ContainerID: "containerd://1",
		State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 4, Message: "open /a: read-only file system"}},
	}}
	d = Find(Evidence{Spec: spec, Bare: true, Pods: []*corev1.Pod{p}, Now: now}).Diagnosis
	assert.Equal(t, runnerapi.CauseJobFailed, d.Cause)
	assert.Contains(t, d.Message, "exit code 4: it writes to the file system, which is read-only")
	assert.Equal(t, []string{"open /a: read-only file system"}, d.LastLines)
}

// TestLastLines_ReadFromLog has containers without a termination message, or with one that was cut
// off.
func TestLastLines_ReadFromLog(t *testing.T) {
	p := &corev1.Pod{}
	ended := func(message string) []End {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "c", ContainerID: "containerd://1",
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: message}},
		}}
		return WantsLastLines(p)
	}
	trace := strings.Repeat("  at line 12345678901234567890\n", 80)
	assert.Equal(t, []End{{"c", false}}, ended(trace), "the kubelet kept the end of a long trace")
	assert.Empty(t, ended("short"))
	assert.Empty(t, ended(trace+"panic: x\n"), "it says why")
	want := ended("")
	assert.Equal(t, []End{{"c", false}}, want)
	told := WithLastLines(p, want[0], "exec format error\n"+trace)
	assert.Empty(t, p.Status.ContainerStatuses[0].State.Terminated.Message, "pods may be a cache's")
	what, _ := lastWords(told.Status.ContainerStatuses[0].State.Terminated.Message)
	assert.Contains(t, what, "another CPU architecture")
	c := &p.Status.ContainerStatuses[0]
	c.LastTerminationState, c.State = c.State, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	assert.Equal(t, []End{{"c", true}}, WantsLastLines(p))
}
