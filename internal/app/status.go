package app

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/diagnose"
	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// observe returns the status that follows from what is there now, and when to look again though
// nothing changed.
func (e *Engine) observe(ctx context.Context, a *App, m made, revision int64) (Status, time.Duration, error) {
	pods, err := e.podsOf(ctx, a)
	if err != nil {
		return Status{}, 0, err
	}
	jobs, err := e.jobsOf(ctx, a, m.workload)
	if err != nil {
		return Status{}, 0, err
	}
	var finding diagnose.Finding
	var current []*corev1.Pod // of the newest spec
	var loopback *runnerapi.Condition
	switch {
	case m.refusal != nil:
		finding.Diagnosis = m.refusal
	case figuresOf(m.workload).seen:
		ev, err := e.evidence(ctx, a, m.workload, pods, currentRuns(a, jobs))
		if err != nil {
			return Status{}, 0, err
		}
		ev.Proven = a.proven(revision)
		finding, current = diagnose.Find(ev), ev.Pods
		if finding.Stop {
			finding.Diagnosis = finding.Halted()
		}
		loopback = diagnose.OnlyOnLoopback(&ev)
	}
	s := *a.Status.DeepCopy()
	s.Selector = labels.SelectorFromSet(managed.AppLabels(a.Name)).String()
	if !a.ranBefore(m) {
		count(&s, a, m.workload, pods, jobs)
		s.Phase, s.Diagnosis = phase(a, m, pods, currentRuns(a, jobs), finding), finding.Diagnosis
		s.WaitingFor = waitsFor(a, m, current, s.Phase, finding)
		s.LastLines = linesOf(finding, s.WaitingFor)
		if a.Spec.Type == runnerapi.TypePipeline {
			if err := e.notePipeline(ctx, a, &s, m, pods); err != nil {
				return Status{}, 0, err
			}
		}
	}
	again, err := e.conditions(ctx, a, m, &s)
	if err != nil {
		return Status{}, 0, err
	}
	if loopback != nil {
		s.Conditions = append(s.Conditions, *loopback)
	}
	if !a.Spec.IsPaused() {
		s.Made = m.objects
	}
	s.ObservedGeneration, s.ObservedRestart = a.Generation, a.restart()
	if s.Phase != a.Status.Phase || s.LastTransition == nil {
		now := e.now().UTC().Truncate(time.Second)
		s.LastTransition = &now
	}
	if finding.Stop {
		s.Stopped = &Stopped{Generation: a.Generation, Restart: a.restart(), Diagnosis: *finding.Diagnosis}
	} else if !a.stopped() {
		s.Stopped = nil
	}
	s.Revision, s.Undone = revision, noteOf(a, revision).Undone
	settle(a, &s, finding.Crashed)
	return s, diagnose.Sooner(finding.Recheck, again), nil
}

// ranBefore reports whether the App's run has ended and was removed since: only the status still
// describes it.
func (a *App) ranBefore(m made) bool {
	return (a.Spec.Type == runnerapi.TypeJob || a.Spec.Type == runnerapi.TypePipeline) && m.workload == nil && m.refusal == nil && a.Status.Finished == runKey(a)
}

func count(s *Status, a *App, w client.Object, pods []*corev1.Pod, jobs []*batchv1.Job) {
	s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.DesiredReplicas, s.Restarts = 0, 0, 0, 0, 0
	s.URLs, s.Runs, s.Finished = nil, nil, ""
	if w == nil {
		return
	}
	s.URLs = urls(a)
	f := figuresOf(w)
	s.Replicas, s.ReadyReplicas, s.DesiredReplicas = f.replicas, f.ready, f.desired
	if f.seen {
		s.UpdatedReplicas = f.updated
	}
	s.Runs = runs(jobs, pods)
	if j := newestEnded(jobs); j != nil && a.Spec.Type == runnerapi.TypeJob {
		s.Finished = j.Annotations[managed.Run]
	}
	for _, pod := range pods {
		for _, c := range pod.Status.ContainerStatuses {
			s.Restarts += c.RestartCount
		}
	}
}

// phase derives the phase. An App is Healthy only if all of it is healthy, and never by outdated
// information.
func phase(a *App, m made, pods []*corev1.Pod, jobs []*batchv1.Job, f diagnose.Finding) runnerapi.Phase {
	figures := figuresOf(m.workload)
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
	case !figures.seen:
		return runnerapi.PhaseProgressing
	case a.Spec.Type == runnerapi.TypeCronJob && serves,
		a.Spec.Type == runnerapi.TypeJob && len(jobs) > 0 && succeeded(jobs[0]),
		a.Spec.Type == runnerapi.TypePipeline && len(jobs) > 0 && succeeded(jobs[0]) && a.isLast(jobs[0]),
		!a.Spec.Type.Runs() && figures.complete() && !f.Unsettled:
		return runnerapi.PhaseHealthy
	case serves && wasComplete(a):
		return runnerapi.PhaseDegraded
	}
	return runnerapi.PhaseProgressing
}

// serves reports whether a Service has a pod to send requests to. A pod whose container ends right
// after each start is none; one whose container runs for a while each time is one all the time,
// where the App has served before: else its phase would change with each restart.
func serves(a *App, figures figures, pods []*corev1.Pod, f diagnose.Finding) bool {
	if max(figures.available, readyPods(pods)) > f.Brief {
		return true
	}
	before := a.observed() && (a.Status.Phase == runnerapi.PhaseHealthy || a.Status.Phase == runnerapi.PhaseDegraded)
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
// loss and not a rollout under way.
func wasComplete(a *App) bool {
	if !a.observed() {
		return false
	}
	return a.Status.Phase == runnerapi.PhaseHealthy ||
		a.Status.Phase == runnerapi.PhaseDegraded && a.Status.Diagnosis == nil
}
