package diagnose

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// failedJob is one that failed for this reason.
func failedJob(name, reason string) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)},
		Spec:       batchv1.JobSpec{ActiveDeadlineSeconds: new(int64(60))},
		Status: batchv1.JobStatus{Failed: 4, Conditions: []batchv1.JobCondition{
			{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: reason, Message: "Job has reached the specified backoff limit"},
		}},
	}
}

// podOf is a pod of a Job that ended so.
func podOf(j *batchv1.Job, name string, end corev1.ContainerStateTerminated) *corev1.Pod {
	p := pod(corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &end}})
	p.Name, p.Spec.RestartPolicy, p.Status.Phase = name, corev1.RestartPolicyNever, corev1.PodFailed
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(j, batchv1.SchemeGroupVersion.WithKind("Job"))}
	return p
}

func TestJob_Diagnosis(t *testing.T) {
	for name, c := range map[string]struct {
		reason  string
		end     *corev1.ContainerStateTerminated
		cause   runnerapi.Cause
		message string
	}{
		"failed":        {batchv1.JobReasonBackoffLimitExceeded, &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 3, Message: "why\n"}, runnerapi.CauseJobFailed, "failed after 4 tries: the container's process ended with exit code 3"},
		"late":          {batchv1.JobReasonDeadlineExceeded, nil, runnerapi.CauseDeadlinePassed, "deadline of 60 s"},
		"without a pod": {batchv1.JobReasonBackoffLimitExceeded, nil, runnerapi.CauseJobFailed, "backoff limit"},
		"out of memory": {batchv1.JobReasonBackoffLimitExceeded, &corev1.ContainerStateTerminated{Reason: "OOMKilled", ExitCode: 137}, runnerapi.CauseOutOfMemory, "used more memory"},
		"without a program": {
			batchv1.JobReasonBackoffLimitExceeded,
			&corev1.ContainerStateTerminated{Reason: "StartError", ExitCode: 128, Message: `exec: "/bin/no": stat /bin/no: no such file or directory`}, runnerapi.CauseBadCommand, "/bin/no",
		},
	} {
		t.Run(name, func(t *testing.T) {
			j := failedJob("web", c.reason)
			ev := Evidence{Job: j, Now: now}
			if c.end != nil {
				ev.Pods = []*corev1.Pod{podOf(j, "web-1", *c.end), podOf(failedJob("other", ""), "other-1", corev1.ContainerStateTerminated{ExitCode: 99})}
			}
			d := Find(ev).Diagnosis
			diagnosed(t, d, c.cause, c.message)
			if c.end != nil {
				assert.Equal(t, c.end.ExitCode, *d.ExitCode)
				assert.Equal(t, "pod/web-1", d.Object)
			}
		})
	}
	running := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "web-2"}}
	tried := podOf(running, "web-2-1", corev1.ContainerStateTerminated{ExitCode: 1})
	assert.Nil(t, Find(Evidence{Job: running, Pods: []*corev1.Pod{tried}, Now: now}).Diagnosis, "it will be tried again")
	d := Find(Evidence{Job: running, LastFailed: failedJob("web-1", ""), Now: now}).Diagnosis
	require.NotNil(t, d, "the run before failed")
	assert.Equal(t, "job/web-1", d.Object)

	late := failedJob("web", batchv1.JobReasonDeadlineExceeded)
	for _, pods := range [][]*corev1.Pod{nil, {podOf(late, "web-1", corev1.ContainerStateTerminated{ExitCode: 143})}} {
		d := Find(Evidence{Job: late, Pods: pods, Now: now}).Diagnosis
		require.NotNil(t, d)
		assert.Equal(t, "job/web", d.Object, "with %d pods", len(pods))
	}
}

// TestJob_EvictedPod has an eviction that ended the process with a signal.
func TestJob_EvictedPod(t *testing.T) {
	j := failedJob("web-1", "")
	gone := podOf(j, "web-1-1", corev1.ContainerStateTerminated{ExitCode: 137})
	gone.Status.Phase, gone.Status.Reason = corev1.PodFailed, "Evicted"
	gone.Status.Message = "Pod ephemeral local storage usage exceeds the total limit of containers 100Ki."
	d := Find(Evidence{Job: j, Pods: []*corev1.Pod{gone}, Now: now}).Diagnosis
	diagnosed(t, d, runnerapi.CauseEvicted, "its pod was evicted: Pod ephemeral local storage")
}

// TestDaemonSet_MatchesNoNode expects other causes than taints.
func TestDaemonSet_MatchesNoNode(t *testing.T) {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "logs"}}
	ds.Spec.Template.Spec.NodeSelector = map[string]string{"gpu": "yes"}
	d := Find(Evidence{DaemonSet: ds, Now: now}).Diagnosis
	require.NotNil(t, d)
	assert.Contains(t, d.Message, "none fits their node selector")
	assert.Contains(t, d.Fix, "correct nodeSelector")
}

// preparingPod is one whose containers are not started for so long.
func preparingPod(since time.Duration) *corev1.Pod {
	p := pod(waits("ContainerCreating", ""))
	p.Spec.Volumes = []corev1.Volume{{Name: "a", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}, Items: []corev1.KeyToPath{{Key: "a.yaml"}},
	}}}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: ago(since)}}
	return p
}

func TestVolume_Diagnosis(t *testing.T) {
	for message, want := range map[string]struct {
		cause runnerapi.Cause
		says  string
	}{
		`MountVolume.SetUp failed for volume "pipeops-file-0" : secret "certs" not found`:                     {runnerapi.CauseMissingSecret, `secret "certs"`},
		`MountVolume.SetUp failed for volume "pipeops-file-0" : configmap "settings" not found`:               {runnerapi.CauseMissingConfigMap, `config map "settings"`},
		`MountVolume.SetUp failed for volume "pipeops-file-0" : references non-existent config key: a.yaml`:   {runnerapi.CauseMissingKey, `config map "settings" has no key "a.yaml"`},
		`MountVolume.MountDevice failed for volume "pv" : rpc error: code = Internal desc = the disk is gone`: {runnerapi.CauseVolumeNotBound, "the disk is gone"},
	} {
		p := preparingPod(5 * time.Second)
		f := Find(Evidence{Pods: []*corev1.Pod{p}, Mounts: map[types.UID]string{p.UID: message}, Now: now})
		diagnosed(t, f.Diagnosis, want.cause, want.says)
		assert.Positive(t, f.Recheck, "nothing that is watched tells of its cure")
	}
	quiet := Find(Evidence{Pods: []*corev1.Pod{preparingPod(time.Second)}, Now: now})
	assert.Nil(t, quiet.Diagnosis)
	assert.Equal(t, time.Second, quiet.Recheck)
	assert.True(t, WantsPreparation(preparingPod(time.Second), now))
	assert.False(t, WantsPreparation(preparingPod(time.Second-time.Millisecond), now), "most pods are through in a second")
	assert.False(t, WantsPreparation(pod(waits("ContainerCreating", "")), now), "it is on no node yet")
}

func TestVolume_Claims(t *testing.T) {
	waiting := func(message string, since time.Duration) *corev1.Pod {
		p := unscheduled(message, since)
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-web-0"},
		}}}
		return p
	}
	const unboundMessage = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/1"
	p := waiting(unboundMessage, 5*time.Second)
	claims, _ := UnboundClaims(p)
	assert.Equal(t, []string{"data-web-0"}, claims)
	f := Find(Evidence{Pods: []*corev1.Pod{p}, Now: now})
	assert.Nil(t, f.Diagnosis, "the volume may be in the making")
	assert.Positive(t, f.Recheck)
	f = Find(Evidence{Pods: []*corev1.Pod{p}, Claims: map[types.UID]Claim{p.UID: {Name: "data-web-0", Message: "no class fast"}}, Now: now})
	diagnosed(t, f.Diagnosis, runnerapi.CauseVolumeNotBound, "no class fast") // somebody said that it will not come
	f = Find(Evidence{Pods: []*corev1.Pod{waiting(unboundMessage, 3*time.Minute)}, Now: now})
	require.NotNil(t, f.Diagnosis, "it takes too long")
	f = Find(Evidence{Pods: []*corev1.Pod{waiting(`persistentvolumeclaim "data" not found`, 0)}, Now: now})
	assert.Contains(t, f.Diagnosis.Message, `claim "data", which the App refers to, does not exist`)
	late := waiting(`persistentvolumeclaim "data-web-0" not found`, 3*time.Minute)
	_, since := UnboundClaims(late)
	assert.Equal(t, late.CreationTimestamp.Time, since, "older events may be about another claim of that name")
	f = Find(Evidence{Pods: []*corev1.Pod{late}, Claims: map[types.UID]Claim{late.UID: {Name: "data-web-0", Message: "no class fast"}}, Now: now})
	assert.Contains(t, f.Diagnosis.Message, "no class fast", "the claim was made after the scheduler looked")
}

func TestDiagnose_WorkloadEvents(t *testing.T) {
	for _, message := range []string{
		`create Pod db-0 in StatefulSet db failed error: pods "db-0" is forbidden: exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0`,
		`Error creating: pods "logs-abc" is forbidden: exceeded quota: none, requested: pods=1, used: pods=0, limited: pods=0`,
	} {
		d := Find(Evidence{Refused: message, RefusedObject: "statefulset/db", Now: now}).Diagnosis
		diagnosed(t, d, runnerapi.CauseQuotaExceeded, "quota none")
	}
	d := Find(Evidence{DaemonSet: &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "logs"}}, Now: now}).Diagnosis
	require.NotNil(t, d, "no node is not success")
	assert.Equal(t, runnerapi.CauseUnschedulable, d.Cause)
	assert.Equal(t, 15*time.Second, Find(Evidence{Missing: 30 * time.Second, Now: now}).Recheck)
}

func TestInitContainer_SucceededIsNoFinding(t *testing.T) {
	p := pod(up(time.Minute))
	p.Spec.InitContainers = []corev1.Container{{Name: "prepare"}}
	p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "prepare", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: ago(2 * time.Minute), FinishedAt: ago(time.Minute)},
	}}}
	assert.Equal(t, Finding{}, Find(Evidence{Pods: []*corev1.Pod{p}, Now: now}))
}

// FuzzMessages reads what controllers and kubelets write in events.
func FuzzMessages(f *testing.F) {
	f.Add(`secret "certs" not found`, `references non-existent config key: a`, `persistentvolumeclaim "d" not found`)
	f.Add("Error creating: pods \"x\" is forbidden: exceeded quota: q, requested: pods=1", "", "pod has unbound immediate PersistentVolumeClaims")
	f.Fuzz(func(t *testing.T, refused, mounts, scheduler string) {
		first, second := preparingPod(time.Minute), preparingPod(time.Minute)
		second.UID = "2"
		second.Status.Conditions = []corev1.PodCondition{{
			Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: scheduler, LastTransitionTime: ago(time.Hour),
		}}
		for _, ev := range []Evidence{
			{Refused: refused, Now: now},
			{Pods: []*corev1.Pod{first}, Mounts: map[types.UID]string{first.UID: mounts}, Now: now},
			{Pods: []*corev1.Pod{second}, Claims: map[types.UID]Claim{second.UID: {Message: mounts, Waits: len(refused)%2 == 0}}, Now: now},
		} {
			if d := Find(ev).Diagnosis; d != nil && (d.Cause == "" || d.Message == "" || d.Fix == "") {
				t.Fatalf("%+v", d)
			}
		}
	})
}

// hourly is a CronJob that is due at each hour, and was at the hour before noon last.
func hourly(change func(*batchv1.CronJob)) *batchv1.CronJob {
	last := metav1.NewTime(time.Date(2026, 3, 4, 11, 0, 0, 0, time.UTC))
	w := &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "report", CreationTimestamp: metav1.NewTime(last.Add(-48 * time.Hour))},
		Spec:       batchv1.CronJobSpec{Schedule: "0 * * * *", TimeZone: new("Etc/UTC"), ConcurrencyPolicy: batchv1.ForbidConcurrent},
		Status:     batchv1.CronJobStatus{LastScheduleTime: &last},
	}
	change(w)
	return w
}

func active(w *batchv1.CronJob) { w.Status.Active = []corev1.ObjectReference{{Name: "report-1"}} }

func at(clock string) time.Time {
	t, err := time.Parse(time.RFC3339, "2026-03-04T"+clock+"Z")
	if err != nil {
		panic(err)
	}
	return t
}

func TestCronJob_NeverStarts(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*batchv1.CronJob)
		now     string
		said    CronEvent
		cause   runnerapi.Cause // none for a CronJob that does well
		message string
		recheck time.Duration
	}{
		"not due yet": {change: func(*batchv1.CronJob) {}, now: "11:59:59"},
		"a day that no month has": {
			change: func(w *batchv1.CronJob) { w.Spec.Schedule = "0 0 31 2 *" }, now: "11:30:00",
			cause: runnerapi.CauseNeverDue, message: "no time matches its schedule 0 0 31 2 *",
		},
		"a leap day": {change: func(w *batchv1.CronJob) { w.Spec.Schedule = "0 0 29 2 *" }, now: "11:30:00"},
		"suspended by its owner": {
			change: func(w *batchv1.CronJob) { w.Spec.Suspend, w.Spec.Schedule = new(true), "0 0 31 2 *" }, now: "11:30:00",
		},
		"a run that may still be started": {change: active, now: "12:30:00", recheck: 30*time.Minute + startedBy},
		"a run that hangs": {
			change: active, now: "13:00:10", cause: runnerapi.CauseRunsSkipped, message: "run report-1 has not ended, so the run of 2026-03-04T12:00:00Z",
		},
		"a run that hangs past the starting deadline": {
			change: func(w *batchv1.CronJob) { active(w); w.Spec.StartingDeadlineSeconds = new(int64(60)) },
			now:    "12:01:10", cause: runnerapi.CauseRunsSkipped, message: "run report-1 has not ended",
		},
		"runs that may overlap": {
			change: func(w *batchv1.CronJob) { active(w); w.Spec.ConcurrencyPolicy = batchv1.AllowConcurrent }, now: "13:00:10",
		},
		"a deadline that was missed": {
			change: func(*batchv1.CronJob) {}, now: "12:00:30", said: CronEvent{"MissSchedule", "Missed scheduled time to start a job: noon"},
			cause: runnerapi.CauseRunsSkipped, message: "starting deadline", recheck: 15 * time.Second,
		},
		"a run that is refused": {
			change: func(*batchv1.CronJob) {}, now: "12:00:30",
			said:  CronEvent{"FailedCreate", `Error creating job: jobs.batch "report-2" is forbidden: exceeded quota: none, requested: count/jobs.batch=1, used: count/jobs.batch=0, limited: count/jobs.batch=0`},
			cause: runnerapi.CauseQuotaExceeded, message: "quota none", recheck: 15 * time.Second,
		},
		"a time zone that nobody knows": {
			change: func(w *batchv1.CronJob) { w.Spec.TimeZone = new("Mars/Olympus") }, now: "11:30:00",
			said:  CronEvent{"UnknownTimeZone", `invalid timeZone: "Mars/Olympus": unknown time zone Mars/Olympus`},
			cause: runnerapi.CauseNeverDue, message: "Mars/Olympus", recheck: 5 * time.Second,
		},
		"a time that the controller says nothing of": {change: func(*batchv1.CronJob) {}, now: "12:00:30", recheck: 15 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			w := hourly(c.change)
			assert.Equal(t, c.said.Reason != "" || name == "a time that the controller says nothing of", WantsCronEvents(w, at(c.now)))
			f := Find(Evidence{Spec: runnerapi.AppSpec{Type: runnerapi.TypeCronJob}, CronJob: w, Cron: c.said, Now: at(c.now)})
			assert.Equal(t, c.recheck, f.Recheck)
			if c.cause == "" {
				assert.Nil(t, f.Diagnosis)
				return
			}
			diagnosed(t, f.Diagnosis, c.cause, c.message)
		})
	}
}
