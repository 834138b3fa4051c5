package controller

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/app/revision"
	"github.com/pipeops/pipeops-vm-agent/internal/app/rollout"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// observe returns the status that follows from what is there now, and when to look again though
// nothing changed.
func (c *Controller) observe(ctx context.Context, a *v1alpha1.App, m made, number int64) (v1alpha1.Status, time.Duration, error) {
	pods, err := c.store.Pods(ctx, a)
	if err != nil {
		return v1alpha1.Status{}, 0, err
	}
	jobs, err := c.jobs.jobsOf(ctx, a, m.workload)
	if err != nil {
		return v1alpha1.Status{}, 0, err
	}
	var finding diagnose.Finding
	var current []*corev1.Pod // of the newest spec
	var unreachable *runnerapi.Condition
	switch {
	case m.refusal != nil:
		finding.Diagnosis = m.refusal
	case workload.FiguresOf(m.workload).Seen:
		ev, err := c.collector.Collect(ctx, a, m.workload, pods, currentRuns(a, jobs))
		if err != nil {
			return v1alpha1.Status{}, 0, err
		}
		ev.Proven = rollout.Proven(a, number)
		finding, current = diagnose.Find(ev), ev.Pods
		if finding.Stop {
			finding.Diagnosis = finding.Halted()
		}
		unreachable = diagnose.Unreachable(&ev)
	}
	s := *a.Status.DeepCopy()
	s.Selector = labels.SelectorFromSet(objectmeta.AppLabels(a.Name)).String()
	if !ranBefore(a, m) {
		count(&s, a, m.workload, pods, jobs)
		s.Phase, s.Diagnosis = phase(a, m, pods, currentRuns(a, jobs), finding), finding.Diagnosis
		s.WaitingFor = waitsFor(a, m, current, s.Phase, finding)
		s.LastLines = linesOf(finding, s.WaitingFor)
		if a.Spec.Type == runnerapi.TypePipeline {
			if err := c.jobs.notePipeline(ctx, a, &s, m, pods); err != nil {
				return v1alpha1.Status{}, 0, err
			}
		}
	}
	again, err := c.conditions(ctx, a, m, &s)
	if err != nil {
		return v1alpha1.Status{}, 0, err
	}
	if unreachable != nil {
		s.Conditions = append(s.Conditions, *unreachable)
	}
	if !a.Spec.IsPaused() {
		s.Made = m.objects
	}
	s.ObservedGeneration, s.ObservedRestart = a.Generation, a.RestartedAt()
	if s.Phase != a.Status.Phase || s.LastTransition == nil {
		now := c.now().UTC().Truncate(time.Second)
		s.LastTransition = &now
	}
	if finding.Stop {
		s.Stopped = &v1alpha1.Stopped{Generation: a.Generation, Restart: a.RestartedAt(), Diagnosis: *finding.Diagnosis}
	} else if !a.IsStopped() {
		s.Stopped = nil
	}
	s.Revision, s.Undone = number, revision.NoteOf(a, number).Undone
	rollout.Settle(a, &s, finding.Crashed)
	return s, diagnose.Sooner(finding.Recheck, again), nil
}

// ranBefore reports whether only the status describes the App's run: it has ended, and its Job was
// removed, or is cached as it was before its end. A new leader's watch of Jobs may lag behind that
// of Apps. If the status followed such a Job, the run would begin again once the watch caught up.
func ranBefore(a *v1alpha1.App, m made) bool {
	if a.Spec.Type != runnerapi.TypeJob && a.Spec.Type != runnerapi.TypePipeline || a.Status.Finished != workload.RunKey(a) {
		return false
	}
	j, ok := m.workload.(*batchv1.Job)
	return m.refusal == nil && (!ok || goesOn(j))
}

func count(s *v1alpha1.Status, a *v1alpha1.App, w client.Object, pods []*corev1.Pod, jobs []*batchv1.Job) {
	s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.DesiredReplicas, s.Restarts = 0, 0, 0, 0, 0
	s.URLs, s.Runs, s.Finished = nil, nil, ""
	if w == nil {
		return
	}
	s.URLs = workload.URLs(a)
	f := workload.FiguresOf(w)
	s.Replicas, s.ReadyReplicas, s.DesiredReplicas = f.Replicas, f.Ready, f.Desired
	if f.Seen {
		s.UpdatedReplicas = f.Updated
	}
	s.Runs = runs(jobs, pods)
	if j := newestEnded(jobs); j != nil && a.Spec.Type == runnerapi.TypeJob {
		s.Finished = j.Annotations[objectmeta.Run]
	}
	for _, pod := range pods {
		for _, c := range pod.Status.ContainerStatuses {
			s.Restarts += c.RestartCount
		}
	}
}

// phase derives the phase. An App is Healthy only if all of it is healthy, and never by outdated
// information.
func phase(a *v1alpha1.App, m made, pods []*corev1.Pod, jobs []*batchv1.Job, f diagnose.Finding) runnerapi.Phase {
	figures := workload.FiguresOf(m.workload)
	serves := serves(a, figures, pods, f)
	switch a.Spec.Type {
	case runnerapi.TypeJob, runnerapi.TypePipeline:
		serves = false
	case runnerapi.TypeCronJob:
		last := newestEnded(jobs)
		serves = m.workload != nil && (last == nil || succeeded(last)) &&
			(f.Diagnosis == nil || f.Diagnosis.Cause != runnerapi.CauseNeverDue)
	}
	switch {
	case a.Spec.IsPaused():
		return runnerapi.PhasePaused
	case f.Diagnosis != nil && f.Diagnosis.Cause.Retried() && a.Spec.Type.Runs() && len(jobs) > 0 && goesOn(jobs[0]):
		return runnerapi.PhaseProgressing // Kubernetes tries it again
	case f.Diagnosis != nil && serves:
		return runnerapi.PhaseDegraded
	case f.Diagnosis != nil:
		return runnerapi.PhaseFailed
	case !figures.Seen:
		return runnerapi.PhaseProgressing
	case a.Spec.Type == runnerapi.TypeCronJob && serves,
		a.Spec.Type == runnerapi.TypeJob && len(jobs) > 0 && succeeded(jobs[0]),
		a.Spec.Type == runnerapi.TypePipeline && len(jobs) > 0 && succeeded(jobs[0]) && isLast(a, jobs[0]),
		!a.Spec.Type.Runs() && figures.Complete() && !f.Unsettled:
		return runnerapi.PhaseHealthy
	case serves && wasComplete(a):
		return runnerapi.PhaseDegraded
	}
	return runnerapi.PhaseProgressing
}

// serves reports whether a Service has a pod to send requests to. A pod whose container ends right
// after each start is none; one whose container runs for a while each time is one all the time,
// where the App has served before: else its phase would change with each restart.
func serves(a *v1alpha1.App, figures workload.Figures, pods []*corev1.Pod, f diagnose.Finding) bool {
	if max(figures.Available, workload.ReadyPods(pods)) > f.Brief {
		return true
	}
	before := a.Observed() && (a.Status.Phase == runnerapi.PhaseHealthy || a.Status.Phase == runnerapi.PhaseDegraded)
	return f.Flaps && before
}

func goesOn(j *batchv1.Job) bool {
	outcome, _ := outcomeOfJob(j)
	return outcome == runnerapi.RunRunning
}

func succeeded(j *batchv1.Job) bool {
	outcome, _ := outcomeOfJob(j)
	return outcome == runnerapi.RunSucceeded
}

// wasComplete reports whether this very spec was fully there before, so that fewer pods now are a
// loss and not a rollout in progress.
func wasComplete(a *v1alpha1.App) bool {
	if !a.Observed() {
		return false
	}
	return a.Status.Phase == runnerapi.PhaseHealthy ||
		a.Status.Phase == runnerapi.PhaseDegraded && a.Status.Diagnosis == nil
}
