package diagnose

import (
	"cmp"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// run finds a failed run of a Job or CronJob: the newest run, or the one before it while the newest
// is still going on.
func run(ev *Evidence) *runnerapi.Diagnosis {
	for _, j := range []*batchv1.Job{ev.Job, ev.LastFailed} {
		if j == nil {
			continue
		}
		for _, c := range j.Status.Conditions {
			if c.Type == batchv1.JobFailed && c.Status == corev1.ConditionTrue {
				return failedRun(j, c, ev.Pods)
			}
		}
	}
	return nil
}

func failedRun(j *batchv1.Job, cond batchv1.JobCondition, pods []*corev1.Pod) *runnerapi.Diagnosis {
	c, end := failedPod(j, pods)
	d := &runnerapi.Diagnosis{Cause: runnerapi.CauseJobFailed, Object: "job/" + j.Name}
	if end != nil {
		d = c.ended(runnerapi.CauseJobFailed, "", "", end)
	}
	tries := fmt.Sprintf("after %d tries", max(j.Status.Failed, 1))
	if j.Status.Failed <= 1 {
		tries = "at its only try"
	}
	switch {
	case cond.Reason == batchv1.JobReasonDeadlineExceeded:
		d.Cause, d.Object = runnerapi.CauseDeadlinePassed, "job/"+j.Name // whether its pod is still there or not
		d.Message = fmt.Sprintf("the run was not done within its deadline of %d s, and was stopped", ptr.Deref(j.Spec.ActiveDeadlineSeconds, 0))
		d.Fix = "raise job.deadlineSeconds, or make the App faster"
		return d
	case evicts(evictedPod(j, pods), c.pod): // regardless of the signal that ended its process
		pod := evictedPod(j, pods)
		d.Cause, d.Object = runnerapi.CauseEvicted, "pod/"+pod.Name
		d.Message, d.Fix = "the run failed "+tries+": its pod was evicted: "+clip(pod.Status.Message), evictedFix
	case end == nil && refusedPod(j, pods) != nil:
		pod := refusedPod(j, pods)
		*d = *refusal(pod)
		d.Message = "the run failed " + tries + ": " + d.Message
	case end == nil:
		d.Message, d.Fix = "the run failed: "+clip(cond.Message), "look at the Job's events (kubectl describe job "+j.Name+")"
	case end.Reason == "OOMKilled":
		d.Cause = runnerapi.CauseOutOfMemory
		d.Message = fmt.Sprintf("the run failed %s: its pod used more memory than its limit of %s", tries, c.spec.Resources.Limits.Memory())
		d.Fix = "raise resources.limits.memory, or make the App use less"
	case end.Reason == "StartError" || end.Reason == "ContainerCannotRun":
		d.Cause = runnerapi.CauseBadCommand
		what, fix := startError(end.Message)
		d.Message, d.Fix = c.what()+" cannot be started: "+cmp.Or(what, clip(end.Message)), cmp.Or(fix, commandFix)
	default:
		d.Message = fmt.Sprintf("the run failed %s: %s's process ended with exit code %d", tries, c.what(), end.ExitCode)
		d.Fix = "read why in its log (logs), correct it, and run it again: an App with deploy or restart, a Job or a Pipeline with run"
		if what, fix := lastWords(end.Message); what != "" {
			d.Message, d.Fix = d.Message+": "+what, fix
		}
	}
	return d
}

// evicts reports whether the pod that failed last was evicted.
func evicts(evicted, last *corev1.Pod) bool {
	return evicted != nil && (last == nil || last.Name == evicted.Name)
}

// bare finds a failed pod without a controller: no controller replaces it.
func bare(ev *Evidence) *runnerapi.Diagnosis {
	if !ev.Bare || len(ev.Pods) != 1 || ev.Pods[0].Status.Phase != corev1.PodFailed {
		return nil
	}
	pod := ev.Pods[0]
	if refusedByNode(pod) {
		d := refusal(pod)
		d.Message = fmt.Sprintf("node %s refused the pod: %s", pod.Spec.NodeName, said(pod))
		return d
	}
	if pod.Status.Reason == "Evicted" {
		return &runnerapi.Diagnosis{Cause: runnerapi.CauseEvicted, Object: "pod/" + pod.Name, Message: why(pod), Fix: evictedFix}
	}
	c, end := lastFailed([]*corev1.Pod{pod})
	if end == nil {
		return &runnerapi.Diagnosis{
			Cause: runnerapi.CauseJobFailed, Object: "pod/" + pod.Name, Message: "the pod failed: " + said(pod),
			Fix: "look at the pod's events (kubectl -n " + pod.Namespace + " describe pod " + pod.Name + ")",
		}
	}
	message, fix := fmt.Sprintf("%s's process ended with exit code %d", c.what(), end.ExitCode), "read why in its logs, and correct the App"
	if what, how := lastWords(end.Message); what != "" {
		message, fix = message+": "+what, how
	}
	return c.ended(runnerapi.CauseJobFailed, "the pod failed: "+message, fix, end)
}

// failedPod returns the container of a run that failed last, and how it failed.
func failedPod(j *batchv1.Job, pods []*corev1.Pod) (found container, how *corev1.ContainerStateTerminated) {
	return lastFailed(slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !metav1.IsControlledBy(p, j) }))
}

func lastFailed(pods []*corev1.Pod) (found container, how *corev1.ContainerStateTerminated) {
	for _, pod := range pods {
		for _, c := range slices.DeleteFunc(containersOf(pod), func(c container) bool { return c.status.State.Terminated == nil }) {
			end := c.status.State.Terminated
			if end.ExitCode != 0 && (how == nil || end.FinishedAt.After(how.FinishedAt.Time)) {
				found, how = c, end
			}
		}
	}
	return found, how
}

// refusedPod returns the newest pod of a run that a node refused, or nil.
func refusedPod(j *batchv1.Job, pods []*corev1.Pod) *corev1.Pod {
	return newestRefused(slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !metav1.IsControlledBy(p, j) }))
}
