package build

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/podlog"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// tailLines is how much of a log is enough to explain a failed build.
	tailLines = 80
	lastLines = 20
	// watchLimit is when a watch begins again.
	watchLimit = 5 * time.Minute
)

// Logs implements backend.Builds.
func (c *Client) Logs(ctx context.Context, key runnerapi.Key, opts runnerapi.LogOptions, emit func(runnerapi.LogLine) error) error {
	runs, err := c.found(ctx, key)
	if err != nil {
		return err
	}
	if opts.Previous {
		return problem.Errorf(problem.Invalid, "leave it out", "a build's pod is not restarted: it has no run before").WithField("query.previous")
	}
	r := &reader{c: c, job: &runs[0], opts: opts, emit: emit, read: map[string]bool{}, now: time.Now()}
	err = r.run(ctx)
	if err == nil || ctx.Err() != nil && opts.Follow {
		return nil
	}
	if refused, ok := errors.AsType[*emitError](err); ok {
		return refused.err
	}
	return kubeproblem.From(err, "reading the log of build "+key.String())
}

// emitError is the caller's own error, passed through as it is.
type emitError struct{ err error }

func (e *emitError) Error() string { return e.err.Error() }

// reader reads the log of one run for one call, container after container.
type reader struct {
	c    *Client
	job  *batchv1.Job
	opts runnerapi.LogOptions
	emit func(runnerapi.LogLine) error
	read map[string]bool // containers that were read to their end
	now  time.Time
}

func (r *reader) run(ctx context.Context) error {
	for {
		pods, err := r.c.core.Pods(r.job.Namespace).List(ctx, metav1.ListOptions{LabelSelector: r.selector()})
		if err != nil {
			return err
		}
		var done bool
		if pod := newestOf(pods.Items, r.job.Name); pod != nil {
			if done, err = r.pod(ctx, pod); err != nil {
				return err
			}
		} else if done, err = r.gone(ctx); err != nil {
			return err
		}
		if done || !r.opts.Follow {
			return nil
		}
		if err := r.changed(ctx, pods.ResourceVersion); err != nil {
			return err
		}
	}
}

func (r *reader) selector() string {
	return objectmeta.ManagedBy + "=" + objectmeta.ManagedByAgent + "," + batchv1.JobNameLabel + "=" + r.job.Name
}

// gone reports whether there will be no pod any more.
func (r *reader) gone(ctx context.Context) (bool, error) {
	job, err := r.c.batch.Jobs(r.job.Namespace).Get(ctx, r.job.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return err == nil && (ended(job) || job.DeletionTimestamp != nil), err
}

// pod reads what containers have written that were not read, and reports whether that was all.
func (r *reader) pod(ctx context.Context, pod *corev1.Pod) (bool, error) {
	for _, s := range stages(pod) {
		if r.read[s.Name] || s.State.Running == nil && s.State.Terminated == nil || r.opts.Container != "" && r.opts.Container != s.Name {
			continue
		}
		if err := r.container(ctx, pod, s.Name); err != nil {
			return false, err
		}
		r.read[s.Name] = true
	}
	over := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed || pod.DeletionTimestamp != nil
	return over, nil
}

func (r *reader) container(ctx context.Context, pod *corev1.Pod, name string) error {
	return r.c.lines(ctx, pod, podlog.Options(name, r.opts, r.now), func(l runnerapi.LogLine) error {
		if err := r.emit(l); err != nil {
			return &emitError{err}
		}
		return nil
	})
}

// changed waits until anything about the pod has.
func (r *reader) changed(ctx context.Context, since string) error {
	w, err := r.c.core.Pods(r.job.Namespace).Watch(ctx, metav1.ListOptions{
		LabelSelector: r.selector(), ResourceVersion: since, TimeoutSeconds: new(int64(watchLimit / time.Second)),
	})
	if err != nil {
		return err
	}
	defer w.Stop()
	select {
	case <-w.ResultChan():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lines passes on a container's log line by line; a slow reader slows it down.
func (c *Client) lines(ctx context.Context, pod *corev1.Pod, o *corev1.PodLogOptions, emit func(runnerapi.LogLine) error) error {
	stream, err := podlog.Open(ctx, c.core, pod, o)
	if apierrors.IsNotFound(err) {
		return nil // it was deleted a moment ago
	}
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		line, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := emit(line); err != nil {
			return err
		}
	}
}

// addLog adds the end of the log to a failure, and what it shows about the step. An unreadable log
// is not an error: what the pod reports remains.
func (c *Client) addLog(ctx context.Context, pod *corev1.Pod, f *runnerapi.BuildFailure) {
	if f.Stage == "start" {
		return
	}
	var all []string
	err := c.lines(ctx, pod, &corev1.PodLogOptions{Container: f.Stage, Timestamps: true, TailLines: new(int64(tailLines))}, func(l runnerapi.LogLine) error {
		all = append(all, l.Line)
		return nil
	})
	if err != nil {
		return
	}
	if f.Cause == buildStage+"_failed" || f.Step == "" && f.Line == 0 && f.Cause != "deadline_exceeded" {
		readLog(f, strings.Join(all, "\n"))
	}
	f.LastLines = all[max(0, len(all)-lastLines):]
}
