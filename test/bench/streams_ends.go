package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

const (
	// endTimeout is how long to wait for an end.
	endTimeout = 30 * time.Second
	// jobTime is how long a Job runs whose log is followed.
	jobTime = 5 * time.Second
)

// measureEnds ends one side, and measures when the other side notices. The followers of 200 logs
// have already been measured.
func (b *streams) measureEnds(ctx context.Context) error {
	for _, end := range []struct {
		id      string
		measure func(context.Context) (time.Duration, error)
	}{
		{"inside_caller_gone", b.callersGo},
		{"commands_process_gone", b.processGoes(b.commandsInside, b.removed)},
		{"ports_process_gone", b.processGoes(b.portsInside, killed)},
		{"logs_app_gone", b.appGoes},
		{"logs_job_done", b.jobEnds},
	} {
		took, err := end.measure(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", end.id, err)
		}
		b.set.Add(end.id, milliseconds(took))
	}
	return nil
}

// ends records when streams ended.
type ends struct {
	work sync.WaitGroup
	mu   sync.Mutex
	last time.Time
}

// until records when do ends.
func (e *ends) until(do func()) {
	e.work.Go(func() {
		do()
		e.mu.Lock()
		defer e.mu.Unlock()
		e.last = time.Now()
	})
}

// after returns how long after a moment the last stream ended; 0 for those that ended before it.
func (e *ends) after(ctx context.Context, from time.Time) (time.Duration, error) {
	all := make(chan struct{})
	go func() { e.work.Wait(); close(all) }()
	select {
	case <-all:
		return max(e.last.Sub(from), 0), nil
	case <-time.After(endTimeout):
		return 0, errors.New("not all streams have ended")
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// portsInside forwards ports that echo; each has done so once.
func (b *streams) portsInside(ctx context.Context, open *ends) error {
	for range b.Inside {
		conn, err := b.client.Apps().PortForward(ctx, moves, runnerapi.PortForwardOptions{Port: bytesPort})
		if err != nil {
			return err
		}
		if err := ping(conn, conn, "echo\n"); err != nil {
			return err
		}
		open.until(func() {
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		})
	}
	return nil
}

// commandsInside runs commands that wait for input; each has answered once.
func (b *streams) commandsInside(ctx context.Context, open *ends) error {
	for range b.Inside {
		in, toCommand := io.Pipe()
		fromCommand, out := io.Pipe()
		open.until(func() {
			_, err := b.client.Apps().Exec(ctx, moves, runnerapi.ExecOptions{Command: []string{"/tar", "-cat"}, Stdin: true},
				runnerapi.ExecStreams{Stdin: in, Stdout: out, Stderr: out})
			_ = in.Close()
			_ = out.CloseWithError(err) // for the reader that waits for the first answer
		})
		if err := ping(fromCommand, toCommand, ""); err != nil {
			return err
		}
	}
	return nil
}

// ping waits for the answer to a line.
func ping(from io.Reader, to io.Writer, first string) error {
	if _, err := io.WriteString(to, first+"ping\n"); err != nil {
		return err
	}
	_, err := io.ReadFull(from, make([]byte, len("ping\n")))
	return err
}

func (b *streams) callersGo(ctx context.Context) (time.Duration, error) {
	before, err := b.number(ctx, callsOpen)
	if err != nil {
		return 0, err
	}
	calling, cancel := context.WithCancel(ctx)
	defer cancel()
	open := &ends{}
	if err := errors.Join(b.portsInside(calling, open), b.commandsInside(calling, open)); err != nil {
		return 0, err
	}
	if n, err := b.number(ctx, callsOpen); err != nil || n != before+float64(2*b.Inside) {
		return 0, errors.Join(err, fmt.Errorf("the agent has %v calls open, before it were %v", n, before))
	}
	start := time.Now()
	cancel()
	n, err := b.awaitNumber(ctx, endTimeout, callsOpen, func(n float64) bool { return n <= before })
	if err == nil && n > before {
		err = fmt.Errorf("the agent still has %v calls open", n)
	}
	return time.Since(start), err
}

// moment waits until something has happened, and returns when that was.
type moment func(context.Context) (time.Time, error)

// processGoes kills the process of a pod with open streams. It returns how long after a given
// moment the last stream ended.
func (b *streams) processGoes(inside func(context.Context, *ends) error, from func(*corev1.Pod) (moment, error)) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		calling, cancel := context.WithCancel(ctx)
		defer cancel()
		pod, err := b.mover(ctx)
		if err != nil {
			return 0, err
		}
		open := &ends{}
		if err := inside(calling, open); err != nil {
			return 0, err
		}
		happened, err := from(pod)
		if err != nil {
			return 0, err
		}
		if err := b.sys.KillPod("tar", pod.Name); err != nil {
			return 0, err
		}
		at, err := happened(ctx)
		if err != nil {
			return 0, err
		}
		return open.after(ctx, at)
	}
}

// mover returns the pod that moves bytes, once its process runs.
func (b *streams) mover(ctx context.Context) (*corev1.Pod, error) {
	if err := b.awaitMover(ctx); err != nil {
		return nil, err
	}
	pods, err := b.kube.CoreV1().Pods(streamsNamespace).List(ctx, metav1.ListOptions{LabelSelector: objectmeta.App + "=" + moves.Name})
	if err != nil {
		return nil, err
	}
	if len(pods.Items) != 1 || len(pods.Items[0].Status.ContainerStatuses) != 1 {
		return nil, fmt.Errorf("of App %s there are %d pods, or not one container", moves, len(pods.Items))
	}
	return &pods.Items[0], nil
}

// killed returns when the process is killed.
func killed(*corev1.Pod) (moment, error) {
	now := time.Now()
	return func(context.Context) (time.Time, error) { return now, nil }, nil
}

// removed waits until containerd has removed the container whose process was killed. Before that it
// reports neither how a command ended nor that the container has (docs/adr/0029). The time depends
// on the node's disk.
func (b *streams) removed(pod *corev1.Pod) (moment, error) {
	await, err := b.sys.WatchRemoval(pod.Status.ContainerStatuses[0].ContainerID)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	return func(ctx context.Context) (time.Time, error) {
		ctx, cancel := context.WithTimeout(ctx, endTimeout)
		defer cancel()
		at, err := await(ctx)
		if err == nil {
			b.set.Add("container_removed", milliseconds(at.Sub(start)))
		}
		return at, err
	}, nil
}

// awaitMover waits until a possibly killed process is back.
func (b *streams) awaitMover(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return harness.Eventually(ctx, "App "+moves.String()+" answers", func(ctx context.Context) error {
		conn, err := b.client.Apps().PortForward(ctx, moves, runnerapi.PortForwardOptions{Port: bytesPort})
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		return ping(conn, conn, "echo\n")
	})
}

func (b *streams) appGoes(ctx context.Context) (time.Duration, error) {
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	open := &ends{}
	came := make(chan struct{}, b.Streams)
	for range b.Streams {
		r := &reader{size: b.Line}
		open.until(func() {
			_ = b.client.Apps().Logs(reading, logs(0), runnerapi.LogOptions{Follow: true, Tail: 1}, func(l runnerapi.LogLine) error {
				if r.lines.Load() == 1 {
					came <- struct{}{}
				}
				return r.take(l)
			})
		})
	}
	for range b.Streams {
		select {
		case <-came:
		case <-time.After(startTimeout):
			return 0, errors.New("not all logs have brought lines")
		}
	}
	if err := b.client.Apps().Delete(ctx, logs(0), runnerapi.WriteOptions{}); err != nil {
		return 0, err
	}
	return open.after(ctx, time.Now())
}

func (b *streams) jobEnds(ctx context.Context) (time.Duration, error) {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := b.kube.BatchV1().Jobs(streamsNamespace).Watch(watching, metav1.ListOptions{})
	if err != nil {
		return 0, err
	}
	complete := await(w, func(o runtime.Object) bool {
		job, ok := o.(*batchv1.Job)
		return ok && job.Status.CompletionTime != nil
	})
	key := runnerapi.Key{Namespace: streamsNamespace, Name: "ends"}
	spec := runnerapi.JobSpec{Image: b.image, Args: []string{"-crash-after", jobTime.String(), "-exit-code", "0"}, Retries: new(int32(0))}
	if _, err := b.client.Jobs().Run(ctx, key, spec, runnerapi.WriteOptions{}); err != nil {
		return 0, err
	}
	open, failed := &ends{}, make(chan error, 1)
	open.until(func() {
		failed <- b.client.Jobs().Logs(watching, key, runnerapi.LogOptions{Follow: true}, func(runnerapi.LogLine) error { return nil })
	})
	at, err := complete(ctx)
	if err != nil {
		return 0, err
	}
	took, err := open.after(ctx, at)
	return took, errors.Join(err, <-failed)
}
