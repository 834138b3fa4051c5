package build

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/pipeops/pipeops-vm-agent/internal/build/step"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// describe returns one run with all details: events and the log too.
func (c *Client) describe(ctx context.Context, job *batchv1.Job) (runnerapi.Build, error) {
	pods, err := c.podsOf(ctx, job.Namespace, batchv1.JobNameLabel+"="+job.Name)
	if err != nil {
		return runnerapi.Build{}, err
	}
	pod := newestOf(pods, job.Name)
	b := c.build(job, pod)
	switch {
	case b.Status.Phase == runnerapi.BuildPending && b.Status.Message == "":
		b.Status.Message, err = c.warning(ctx, job, pod)
	case b.Status.Failure != nil && pod != nil:
		c.addLog(ctx, pod, b.Status.Failure)
	}
	return b, err
}

// build returns one run from its Job and pod, which may be nil.
func (c *Client) build(job *batchv1.Job, pod *corev1.Pod) runnerapi.Build {
	b := runnerapi.Build{
		Namespace: job.Namespace, Name: job.Labels[nameLabel], CreatedAt: job.CreationTimestamp.UTC(),
		Runner: job.Annotations[objectmeta.ChangedBy], Status: statusOf(job, pod),
	}
	_ = json.Unmarshal([]byte(job.Annotations[specNote]), &b.Spec) // the agent's own; an edited one may be empty
	return b
}

func short(job *batchv1.Job, pod *corev1.Pod) runnerapi.BuildRun {
	status := statusOf(job, pod)
	var spec runnerapi.BuildSpec
	_ = json.Unmarshal([]byte(job.Annotations[specNote]), &spec)
	run := runnerapi.BuildRun{Run: spec.Run, CreatedAt: job.CreationTimestamp.UTC(), Phase: status.Phase, Commit: status.Commit, Image: status.Image}
	if status.Failure != nil {
		run.Cause = status.Failure.Cause
	}
	return run
}

// endOf returns how and when a Job ended; nil while it has not.
func endOf(job *batchv1.Job) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		c := &job.Status.Conditions[i]
		if c.Status == corev1.ConditionTrue && (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) {
			return c
		}
	}
	return nil
}

func ended(job *batchv1.Job) bool { return endOf(job) != nil }

func statusOf(job *batchv1.Job, pod *corev1.Pod) runnerapi.BuildStatus {
	s := runnerapi.BuildStatus{Phase: runnerapi.BuildPending}
	if t := job.Status.StartTime; t != nil {
		at := t.UTC()
		s.StartedAt = &at
	}
	if pod != nil {
		readPod(&s, pod)
	}
	end := endOf(job)
	if end == nil {
		return s
	}
	at := end.LastTransitionTime.UTC()
	s.FinishedAt, s.Message = &at, ""
	if s.StartedAt != nil {
		s.Seconds = at.Sub(*s.StartedAt).Seconds()
	}
	if end.Type == batchv1.JobComplete && s.Image != "" {
		s.Phase = runnerapi.BuildSucceeded
		return s
	}
	s.Phase, s.Failure = runnerapi.BuildFailed, failureOf(end, pod)
	return s
}

// stages returns the statuses of the containers in the order in which they run.
func stages(pod *corev1.Pod) []corev1.ContainerStatus {
	order := []string{fetchStage, buildStage, pushStage}
	all := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	slices.SortStableFunc(all, func(a, b corev1.ContainerStatus) int {
		return slices.Index(order, a.Name) - slices.Index(order, b.Name)
	})
	return all
}

var phaseOf = map[string]runnerapi.BuildPhase{
	fetchStage: runnerapi.BuildFetching, buildStage: runnerapi.BuildBuilding, pushStage: runnerapi.BuildPushing,
}

// readPod reads from a pod how far it is and what its steps have left.
func readPod(s *runnerapi.BuildStatus, pod *corev1.Pod) {
	for _, c := range stages(pod) {
		switch {
		case c.State.Terminated != nil:
			s.Phase = phaseOf[c.Name]
			if r, ok := step.Parse(c.State.Terminated.Message); ok && c.State.Terminated.ExitCode == 0 && c.Name != buildStage {
				take(s, c.Name, r)
			}
			if c.State.Terminated.ExitCode != 0 {
				return
			}
		case c.State.Running != nil:
			s.Phase = phaseOf[c.Name]
			return
		case c.State.Waiting != nil:
			if w := c.State.Waiting; w.Message != "" && w.Reason != "PodInitializing" {
				s.Message = fmt.Sprintf("%s waits: %s: %s", c.Name, w.Reason, w.Message)
			}
			return
		}
	}
}

// take accepts from each step only what that step alone knows.
func take(s *runnerapi.BuildStatus, stage string, r step.Result) {
	if stage == fetchStage {
		s.Commit = r.Commit
	} else {
		s.Tag, s.Image = r.Tag, r.Image
	}
}

// warning returns what Kubernetes reports while a pod does not run.
func (c *Client) warning(ctx context.Context, job *batchv1.Job, pod *corev1.Pod) (string, error) {
	names := map[string]bool{job.Name: true}
	if pod != nil {
		names[pod.Name] = true
	}
	list, err := c.core.Events(job.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("type", corev1.EventTypeWarning).String(), Limit: 500,
	})
	if err != nil {
		return "", kubeproblem.From(err, "reading the events of a build")
	}
	var newest *corev1.Event
	for i := range list.Items {
		e := &list.Items[i]
		if names[e.InvolvedObject.Name] && (newest == nil || newest.LastTimestamp.Before(&e.LastTimestamp)) {
			newest = e
		}
	}
	if newest == nil {
		return "", nil
	}
	return newest.Reason + ": " + newest.Message, nil
}
