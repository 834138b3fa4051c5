package controller

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// convergePipeline makes the Job whose turn it is and returns it: the first that has not succeeded,
// or the last. Nothing of a previous run may be left when the first one begins. The App's status
// records the ended jobs, so that none runs again after its Job is gone. Like a single Job, one
// that is deleted before it has ended is made again.
func (r *jobs) convergePipeline(ctx context.Context, a *v1alpha1.App) (client.Object, error) {
	have, err := r.pipelineJobs(ctx, a)
	if err != nil {
		return nil, err
	}
	key := workload.RunKey(a)
	if waits, err := r.removeOtherRuns(ctx, have, key); waits || err != nil {
		return nil, err
	}
	var last *batchv1.Job
	for _, spec := range a.Spec.Jobs {
		j := named(have, workload.PipelineJobName(a, spec))
		switch {
		case j == nil && a.Status.Finished == key:
			return nil, nil // only the status has it
		case j == nil && jobEnded(a, spec.Name, key):
			continue
		case j == nil:
			want, err := workload.PipelineJob(a, spec)
			if err != nil {
				return nil, err
			}
			return want, r.makeJob(ctx, a, want)
		case !j.DeletionTimestamp.IsZero() && a.Status.Finished != key:
			return nil, nil // an event comes when it is gone
		case !succeeded(j):
			return j, nil
		}
		last = j
	}
	if last == nil {
		return nil, nil // not a nil *Job, which is a non-nil interface
	}
	return last, nil
}

// isLast reports whether a Job is that of the last of a Pipeline's jobs.
func isLast(a *v1alpha1.App, j *batchv1.Job) bool {
	return j.Name == workload.PipelineJobName(a, a.Spec.Jobs[len(a.Spec.Jobs)-1])
}

// removeOtherRuns removes the Jobs of other runs, with their pods, and reports whether there are
// any: two runs must not overlap.
func (r *jobs) removeOtherRuns(ctx context.Context, have []*batchv1.Job, key string) (waits bool, err error) {
	for _, j := range have {
		if j.Annotations[objectmeta.Run] == key {
			continue
		}
		waits = true
		if j.DeletionTimestamp.IsZero() {
			if err := r.store.Delete(ctx, j, metav1.DeletePropagationForeground); err != nil {
				return true, err
			}
		}
	}
	return waits, nil
}

// pipelineJobs returns the Jobs of a Pipeline in the cluster, of all runs.
func (r *jobs) pipelineJobs(ctx context.Context, a *v1alpha1.App) ([]*batchv1.Job, error) {
	if a.Spec.Type != runnerapi.TypePipeline {
		return nil, nil
	}
	var list batchv1.JobList
	if err := r.store.Cached.List(ctx, &list, client.InNamespace(a.Namespace), client.MatchingLabels(objectmeta.AppLabels(a.Name))); err != nil {
		return nil, fmt.Errorf("list the Jobs of Pipeline %s: %w", a.Key(), err)
	}
	var jobs []*batchv1.Job
	for i := range list.Items {
		if workload.Owns(a, &list.Items[i]) {
			jobs = append(jobs, &list.Items[i])
		}
	}
	return jobs, nil
}

func named(jobs []*batchv1.Job, name string) *batchv1.Job {
	i := slices.IndexFunc(jobs, func(j *batchv1.Job) bool { return j.Name == name })
	if i < 0 {
		return nil
	}
	return jobs[i]
}

// resultIn returns what the status has about a job in this run, or nil.
func resultIn(a *v1alpha1.App, name, key string) *runnerapi.JobResult {
	i := slices.IndexFunc(a.Status.Jobs, func(r runnerapi.JobResult) bool { return r.Name == name })
	if i < 0 || a.Status.JobsRun != key {
		return nil
	}
	return &a.Status.Jobs[i]
}

func jobEnded(a *v1alpha1.App, name, key string) bool {
	r := resultIn(a, name, key)
	return r != nil && r.State.Ended()
}

// notePipeline writes into a status the state of each job, and whether the run has ended.
func (r *jobs) notePipeline(ctx context.Context, a *v1alpha1.App, s *v1alpha1.Status, m made, pods []*corev1.Pod) error {
	have, err := r.pipelineJobs(ctx, a)
	if err != nil {
		return err
	}
	key := workload.RunKey(a)
	s.JobsRun, s.Jobs, s.Finished = key, make([]runnerapi.JobResult, 0, len(a.Spec.Jobs)), ""
	failed, refused := false, false
	for _, spec := range a.Spec.Jobs {
		r := runnerapi.JobResult{Name: spec.Name, State: runnerapi.JobWaiting}
		j := named(have, workload.PipelineJobName(a, spec))
		current := m.workload != nil && m.workload.GetName() == workload.PipelineJobName(a, spec)
		if j == nil && current { // created just now
			j, _ = m.workload.(*batchv1.Job)
		}
		switch earlier := resultIn(a, spec.Name, key); {
		case j != nil && j.Annotations[objectmeta.Run] == key && (!goesOn(j) || !jobEnded(a, spec.Name, key)): // see ranBefore
			r = resultOf(spec.Name, j, pods)
			if current {
				r.Diagnosis = s.Diagnosis.DeepCopy()
			}
		case earlier != nil && earlier.State.Ended():
			r = *earlier
		case failed:
			r.State = runnerapi.JobNotRun
		case m.refusal != nil && !refused: // it is this job's turn
			r.Diagnosis, refused = m.refusal.DeepCopy(), true
		}
		retried := r.State == runnerapi.JobRunning && r.Diagnosis != nil && r.Diagnosis.Cause.Retried()
		if r.Diagnosis != nil && !r.State.Ended() && !retried {
			r.State = runnerapi.JobBlocked
		}
		failed = failed || r.State == runnerapi.JobFailed
		s.Jobs = append(s.Jobs, r)
	}
	if failed || !slices.ContainsFunc(s.Jobs, func(r runnerapi.JobResult) bool { return r.State != runnerapi.JobSucceeded }) {
		s.Finished = key
	}
	return nil
}

func resultOf(name string, j *batchv1.Job, pods []*corev1.Pod) runnerapi.JobResult {
	run := runOf(j, pods)
	return runnerapi.JobResult{
		Name: name, State: runnerapi.JobState(run.Outcome), StartedAt: &run.StartedAt, FinishedAt: run.FinishedAt,
		Tries: run.Tries, ExitCode: run.ExitCode,
	}
}

// sweepPipeline removes the Jobs of a finished Pipeline whose time is up. Otherwise it returns how
// long they have left.
func (r *jobs) sweepPipeline(ctx context.Context, a *v1alpha1.App) (time.Duration, error) {
	if a.Spec.Job == nil || a.Spec.Job.TTLSeconds == nil || a.Status.Finished != workload.RunKey(a) {
		return 0, nil
	}
	var at time.Time
	for _, r := range a.Status.Jobs {
		if r.FinishedAt != nil && r.FinishedAt.After(at) {
			at = *r.FinishedAt
		}
	}
	if left := time.Duration(*a.Spec.Job.TTLSeconds)*time.Second - r.now().Sub(at); left > 0 {
		return left, nil
	}
	have, err := r.pipelineJobs(ctx, a)
	for _, j := range have {
		if err := r.store.DeleteOwn(ctx, a, j); err != nil {
			return 0, err
		}
	}
	return 0, err
}
