package logs

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// reopen is the pause before a log that ended is opened again: until Kubernetes reports that the
// container ended, it seems to be running.
const reopen = time.Second

// follow passes on what the pods write until ctx ends or the App is gone. One
// goroutine per running container reads; this one alone writes.
func (r *reading) follow(ctx context.Context, news <-chan struct{}) error {
	ctx, cancel := context.WithCancel(ctx)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer cancel()
	lines, ends := make(chan podLine), make(chan types.UID)
	reading := map[types.UID]bool{}

	for {
		done := r.done(ctx)
		pods, err := r.pods(ctx)
		if err != nil {
			return err
		}
		for _, pod := range pods {
			if reading[pod.UID] || !r.wants(pod) {
				continue
			}
			reading[pod.UID] = true
			opts, skip := r.followOptions(pod), skipper{from: r.seen[pod.UID]}
			readers.Go(func() { r.tail(ctx, pod, opts, skip, lines, ends) })
		}
		if done && len(reading) == 0 {
			return nil
		}
		if again, err := r.relay(ctx, reading, lines, ends, news); !again {
			return err
		}
	}
}

// wants reports whether there is something to be read of a pod. What ends has pods that may have
// come and gone between two looks.
func (r *reading) wants(pod *corev1.Pod) bool {
	if r.runs(pod) || !r.opts.UntilDone || r.ended[pod.UID] {
		return r.runs(pod)
	}
	r.ended[pod.UID] = true
	return true
}

// done reports whether the run has ended whose log is read until then.
func (r *reading) done(ctx context.Context) bool {
	if !r.opts.UntilDone {
		return false
	}
	a, err := r.store.Get(ctx, r.app.Key())
	return err == nil && a.Observed() && a.Status.Finished == workload.RunKey(a)
}

// followOptions go on where this pod's log was read to. A pod that was there
// from the beginning but had no line to show is read as the caller asked.
func (r *reading) followOptions(pod *corev1.Pod) *corev1.PodLogOptions {
	opts := &corev1.PodLogOptions{Container: r.container(), Timestamps: true}
	switch from := r.seen[pod.UID]; {
	case !from.at.IsZero():
		opts.SinceTime = new(metav1.NewTime(from.at)) // whole seconds: what was read comes again
	case r.first[pod.UID]:
		opts = r.logOptions()
	}
	opts.Follow = true
	return opts
}

// relay passes lines on until there is reason to look at the pods again.
func (r *reading) relay(
	ctx context.Context, reading map[types.UID]bool, lines <-chan podLine, ends <-chan types.UID, news <-chan struct{},
) (again bool, err error) {
	for {
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case l := <-lines:
			if err := r.pass(l); err != nil {
				return false, err
			}
		case uid := <-ends:
			delete(reading, uid)
			return true, nil
		case <-news:
			if a, err := r.store.Get(ctx, r.app.Key()); err != nil || a.UID != r.app.UID {
				return false, nil //nolint:nilerr // the App is gone, and so is its log
			}
			return true, nil
		}
	}
}

// tail reads one container's log until its run ends.
func (r *reading) tail(
	ctx context.Context, pod *corev1.Pod, opts *corev1.PodLogOptions, skip skipper, lines chan<- podLine, ends chan<- types.UID,
) {
	defer func() {
		if !retry.Wait(ctx, retry.Jitter(reopen)) {
			return
		}
		select {
		case ends <- pod.UID:
		case <-ctx.Done():
		}
	}()
	stream, err := r.open(ctx, pod, opts)
	if err != nil {
		if !gone(err) && ctx.Err() == nil {
			r.log.Warn().Err(err).Str("pod", pod.Name).Msg("failed to follow a pod's log; retrying")
		}
		return
	}
	defer stream.close()
	for {
		l, err := stream.next()
		if err != nil {
			return
		}
		if skip.read(l) {
			continue
		}
		select {
		case lines <- l:
		case <-ctx.Done():
			return
		}
	}
}

// skipper leaves out the lines that were passed on already.
type skipper struct {
	from position
	same int
}

func (s *skipper) read(l podLine) bool {
	at := l.line.Time
	if at.Before(s.from.at) {
		return true
	}
	if at.Equal(s.from.at) && s.same < s.from.times {
		s.same++
		return true
	}
	return false
}
