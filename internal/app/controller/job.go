package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/apply"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// jobs carries out Apps that run to an end.
type jobs struct {
	store   *appcache.Store
	applier *apply.Applier
	now     func() time.Time
}

// maxRuns bounds the runs in a status.
const maxRuns = 10

// convergeJob runs an App of type Job once for each spec and restart. A Job is immutable, so the
// previous one and its pods are removed first. A Job that has ended does not run again after its
// removal. So the App's status remembers it, and the agent, not Kubernetes, removes it when its
// time is up.
func (r *jobs) convergeJob(ctx context.Context, a *v1alpha1.App) (client.Object, error) {
	want, err := workload.Job(a)
	if err != nil {
		return nil, err
	}
	key := workload.RunKey(a)
	metav1.SetMetaDataAnnotation(&want.ObjectMeta, objectmeta.Run, key)
	have, err := r.applier.Get(ctx, want)
	switch {
	case err != nil:
		return nil, err
	case have == nil && a.Status.Finished == key:
		return nil, nil
	case have == nil:
		return want, r.makeJob(ctx, a, want)
	case !workload.Owns(a, have):
		return nil, apply.Foreign(a, "Job", have)
	case !have.GetDeletionTimestamp().IsZero():
		return nil, nil // an event comes when it is gone
	case have.GetAnnotations()[objectmeta.Run] != key: // its pods go first: two runs must not overlap
		return nil, r.store.Delete(ctx, have, metav1.DeletePropagationForeground)
	}
	return have, nil
}

// makeJob creates a Job, and recreates one that was deleted before it ended. One that is there was
// not deleted: the cache is behind. The leader may have been held since it read the App: the next
// one may have seen the run end, and removed its Job.
func (r *jobs) makeJob(ctx context.Context, a *v1alpha1.App, want *batchv1.Job) error {
	there, err := r.applier.RefuseForeign(ctx, a, want)
	if err != nil {
		return err
	}
	if err := r.applier.Current(ctx, a); err != nil {
		return err
	}
	found := runnerapi.Drift{Object: workload.KindPath("Job", want.Name), Deleted: true}
	if err := r.applier.Apply(ctx, want, false); err != nil || there || !a.HasMade(found.Object) {
		return err
	}
	return r.applier.NoteDrift(ctx, a, found)
}

// sweepJob removes a finished Job whose time is up, once the status remembers its end. Otherwise it
// returns how long the Job has left.
func (r *jobs) sweepJob(ctx context.Context, a *v1alpha1.App, m made) (time.Duration, error) {
	if a.Spec.Type == runnerapi.TypePipeline {
		return r.sweepPipeline(ctx, a)
	}
	j, ok := m.workload.(*batchv1.Job)
	if !ok || a.Spec.Job == nil || a.Spec.Job.TTLSeconds == nil || a.Status.Finished != workload.RunKey(a) {
		return 0, nil
	}
	_, at := outcomeOfJob(j)
	if at == nil {
		return 0, nil
	}
	left := time.Duration(*a.Spec.Job.TTLSeconds)*time.Second - r.now().Sub(at.Time)
	if left > 0 {
		return left, nil
	}
	return 0, r.store.DeleteOwn(ctx, a, j)
}

// outcomeOfJob returns how and when a Job ended; at is nil while it has not.
func outcomeOfJob(j *batchv1.Job) (outcome runnerapi.RunOutcome, at *metav1.Time) {
	for i := range j.Status.Conditions {
		c := &j.Status.Conditions[i]
		if c.Status != corev1.ConditionTrue {
			continue
		}
		switch c.Type {
		case batchv1.JobComplete:
			return runnerapi.RunSucceeded, &c.LastTransitionTime
		case batchv1.JobFailed:
			return runnerapi.RunFailed, &c.LastTransitionTime
		}
	}
	return runnerapi.RunRunning, nil
}

// jobsOf returns the runs of a Job or CronJob that still exist in the cluster, newest first.
func (r *jobs) jobsOf(ctx context.Context, a *v1alpha1.App, w client.Object) ([]*batchv1.Job, error) {
	if j, ok := w.(*batchv1.Job); ok {
		return []*batchv1.Job{j}, nil
	}
	if w == nil || a.Spec.Type != runnerapi.TypeCronJob {
		return nil, nil
	}
	var list batchv1.JobList
	if err := r.store.Cached.List(ctx, &list, client.InNamespace(a.Namespace), client.MatchingLabels(objectmeta.AppLabels(a.Name))); err != nil {
		return nil, fmt.Errorf("list the runs of App %s: %w", a.Key(), err)
	}
	var jobs []*batchv1.Job
	for i := range list.Items {
		if metav1.IsControlledBy(&list.Items[i], w) {
			jobs = append(jobs, &list.Items[i])
		}
	}
	slices.SortFunc(jobs, func(a, b *batchv1.Job) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name))
	})
	return jobs, nil
}

// runs returns the runs for a status.
func runs(jobs []*batchv1.Job, pods []*corev1.Pod) []runnerapi.Run {
	if len(jobs) == 0 {
		return nil
	}
	out := make([]runnerapi.Run, 0, min(len(jobs), maxRuns))
	for _, j := range jobs[:min(len(jobs), maxRuns)] {
		out = append(out, runOf(j, pods))
	}
	return out
}

func runOf(j *batchv1.Job, pods []*corev1.Pod) runnerapi.Run {
	run := runnerapi.Run{
		Name: j.Name, StartedAt: j.CreationTimestamp.UTC(), ExitCode: exitCodeOf(j, pods),
		Tries: j.Status.Active + j.Status.Succeeded + j.Status.Failed,
	}
	var at *metav1.Time
	if run.Outcome, at = outcomeOfJob(j); at != nil {
		t := at.UTC()
		run.FinishedAt = &t
	}
	return run
}

// exitCodeOf returns the exit code of the container that ended last, among those whose pods still
// exist.
func exitCodeOf(j *batchv1.Job, pods []*corev1.Pod) *int32 {
	var last *corev1.ContainerStateTerminated
	for _, pod := range pods {
		if !metav1.IsControlledBy(pod, j) {
			continue
		}
		for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			if end := c.State.Terminated; end != nil && (last == nil || !end.FinishedAt.Before(&last.FinishedAt)) {
				last = end
			}
		}
	}
	if last == nil {
		return nil
	}
	return new(last.ExitCode)
}

// currentRuns returns the runs of the newest spec: older runs are not evidence about it.
func currentRuns(a *v1alpha1.App, jobs []*batchv1.Job) []*batchv1.Job {
	key := workload.RunKey(a)
	return slices.DeleteFunc(slices.Clone(jobs), func(j *batchv1.Job) bool { return j.Annotations[objectmeta.Run] != key })
}

// newestEnded returns the newest run that has ended, or nil.
func newestEnded(jobs []*batchv1.Job) *batchv1.Job {
	for _, j := range jobs {
		if _, at := outcomeOfJob(j); at != nil {
			return j
		}
	}
	return nil
}
