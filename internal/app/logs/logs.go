package logs

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rs/zerolog"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxLogPods bounds how many pods are read at once; the newest are.
const maxLogPods = 100

// Reader reads what the pods of Apps have written.
type Reader struct {
	store   *appcache.Store
	podLogs corev1client.PodsGetter
	log     zerolog.Logger
	now     func() time.Time
	archive Archive // may be nil
}

// New returns a Reader.
func New(store *appcache.Store, pods corev1client.PodsGetter, log zerolog.Logger, now func() time.Time) *Reader {
	return &Reader{store: store, podLogs: pods, log: log, now: now}
}

// Logs first merges what the pods have written by time. With Follow it then passes on what they
// write, including new pods and restarted containers.
//
// It buffers only one line per pod, so a slow reader slows the pods' streams down.
func (l *Reader) Logs(ctx context.Context, key runnerapi.Key, opts runnerapi.LogOptions, emit func(runnerapi.LogLine) error) error {
	if err := l.store.Admit(ctx, key.Namespace); err != nil {
		return err
	}
	a, err := l.store.Get(ctx, key)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	news, unsubscribe := l.store.Subscribe(key)
	defer unsubscribe()

	r := &reading{Reader: l, app: a, opts: opts, emit: emit, seen: map[types.UID]position{}, first: map[types.UID]bool{}, ended: map[types.UID]bool{}}
	pods, err := r.pods(ctx)
	if err != nil {
		return err
	}
	for _, pod := range pods {
		r.first[pod.UID] = true
	}
	if err := r.history(ctx, pods); err != nil {
		return logProblem(ctx, err, key)
	}
	if !opts.Follow || opts.Previous {
		return nil
	}
	return logProblem(ctx, r.follow(ctx, news), key)
}

// logProblem lets the end of a follow be no error.
func logProblem(ctx context.Context, err error, key runnerapi.Key) error {
	if err == nil || ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	if refused, ok := errors.AsType[*emitError](err); ok {
		return refused.err
	}
	return kubeproblem.From(err, "reading the logs of App "+key.String())
}

// emitError is the reader's own error, passed through as it is.
type emitError struct{ err error }

func (e *emitError) Error() string { return e.err.Error() }
func (e *emitError) Unwrap() error { return e.err }

// reading reads the logs of one App for one call.
type reading struct {
	*Reader
	app   *v1alpha1.App
	opts  runnerapi.LogOptions
	emit  func(runnerapi.LogLine) error
	seen  map[types.UID]position
	first map[types.UID]bool // pods that were there when the call began
	ended map[types.UID]bool // pods that are read to their end; with UntilDone
}

// position is how far a pod's log was read: the time of the last line, and how
// many lines have that time.
type position struct {
	at    time.Time
	times int
}

func (p position) after(at time.Time) position {
	if at.Equal(p.at) {
		return position{at: at, times: p.times + 1}
	}
	return position{at: at, times: 1}
}

// pods returns the App's pods that have a container to read, newest first.
func (r *reading) pods(ctx context.Context) ([]*corev1.Pod, error) {
	all, err := r.store.Pods(ctx, r.app)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(pod *corev1.Pod) bool { return !r.readable(pod) })
	slices.SortFunc(all, func(a, b *corev1.Pod) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	if len(all) > 0 && !r.hasContainer(all[0]) {
		return nil, problem.Errorf(problem.NotFound, "name one of the pod's containers, or none for the App's own",
			"the App has no container %q", r.container()).WithField("query.container")
	}
	return all[:min(len(all), maxLogPods)], nil
}

func (r *reading) container() string {
	return cmp.Or(r.opts.Container, r.app.Name)
}

func (r *reading) hasContainer(pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(c corev1.Container) bool {
		return c.Name == r.container()
	})
}

// readable reports whether the container has a run whose log there is.
func (r *reading) readable(pod *corev1.Pod) bool {
	c := r.status(pod)
	if c == nil {
		return !r.hasContainer(pod) && len(pod.Status.ContainerStatuses) > 0 // to be complained about
	}
	if r.opts.Previous {
		return c.LastTerminationState.Terminated != nil
	}
	return c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil
}

func (r *reading) status(pod *corev1.Pod) *corev1.ContainerStatus {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if c.Name == r.container() {
			return &c
		}
	}
	return nil
}

func (r *reading) runs(pod *corev1.Pod) bool {
	c := r.status(pod)
	return c != nil && c.State.Running != nil
}

// pass hands a line to the caller and notes the position.
func (r *reading) pass(l podLine) error {
	if l.pod != nil {
		r.seen[l.pod.UID] = r.seen[l.pod.UID].after(l.line.Time)
	}
	if err := r.emit(l.line); err != nil {
		return &emitError{err}
	}
	return nil
}
