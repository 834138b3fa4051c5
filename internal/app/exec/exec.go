package exec

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	utilexec "k8s.io/client-go/util/exec"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/internal/kubeproblem"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

var _ backend.Sessions = (*Executor)(nil)

// Executor runs commands in the pods of Apps, and forwards their ports.
type Executor struct {
	store *appcache.Store
	rest  *rest.Config
	core  rest.Interface // of the core API
}

// New returns an Executor.
func New(store *appcache.Store, config *rest.Config, core rest.Interface) *Executor {
	return &Executor{store: store, rest: config, core: core}
}

// Exec implements backend.Sessions.
func (x *Executor) Exec(ctx context.Context, key runnerapi.Key, opts runnerapi.ExecOptions) (runnerapi.Execution, error) {
	container := cmp.Or(opts.Container, key.Name)
	pod, err := x.podInside(ctx, key, opts.Pod, container)
	if err != nil {
		return nil, err
	}
	executor, err := x.executor(x.podURL(pod, "exec", &corev1.PodExecOptions{
		Container: container, Command: opts.Command, Stdin: opts.Stdin, Stdout: true, Stderr: !opts.TTY, TTY: opts.TTY,
	}))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, s runnerapi.ExecStreams) (int, error) {
		o := remotecommand.StreamOptions{Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr, Tty: opts.TTY}
		if s.Resize != nil {
			o.TerminalSizeQueue = sizeQueue{ctx, s.Resize}
		}
		return exitCode(ctx, executor.StreamWithContext(ctx, o), pod.Name)
	}, nil
}

func (x *Executor) podURL(pod *corev1.Pod, subresource string, opts *corev1.PodExecOptions) *url.URL {
	r := x.core.Post().Resource("pods").Namespace(pod.Namespace).Name(pod.Name).SubResource(subresource)
	if opts != nil {
		r = r.VersionedParams(opts, scheme.ParameterCodec)
	}
	return r.URL()
}

// exitCode distinguishes a command's own end from other failures.
func exitCode(ctx context.Context, err error, pod string) (int, error) {
	var exit utilexec.CodeExitError
	switch {
	case err == nil || ctx.Err() != nil:
		return 0, ctx.Err()
	case errors.As(err, &exit):
		return exit.Code, nil
	}
	return 0, insideProblem(err, pod)
}

// missingProgram matches the text of runc and crun, through containerd and CRI-O.
var missingProgram = regexp.MustCompile(`exec: "([^"]+)": (?:executable file not found|stat [^:]*: no such file|no such file)|executable file ` + "`([^`]+)`" + ` not found`)

// insideProblem turns Kubernetes' text about a container that could not be reached into a problem.
// The text is the runtime's own, for example that a program does not exist.
func insideProblem(err error, pod string) error {
	if upgrade, ok := errors.AsType[*httpstream.UpgradeFailureError](err); ok {
		return kubeproblem.From(upgrade.Cause, "reaching into pod "+pod)
	}
	if missing := missingProgram.FindStringSubmatch(err.Error()); missing != nil {
		return problem.Errorf(problem.Conflict, "name one that is there; small images often have neither a shell nor its tools",
			"pod %s: there is no program %q in the container", pod, cmp.Or(missing[1], missing[2]))
	}
	return problem.Errorf(problem.Conflict, "see whether the program and the port are there in the App's image, and whether the pod still runs",
		"pod %s: %s", pod, shortly(err))
}

// shortly returns the first line of an error, of a length to be shown.
func shortly(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return printable.Shorten(text, 512)
}

// podInside returns the pod whose container is meant: the one of that name, or the newest that is
// ready, or that at least runs.
func (x *Executor) podInside(ctx context.Context, key runnerapi.Key, name, container string) (*corev1.Pod, error) {
	if err := x.store.Admit(ctx, key.Namespace); err != nil {
		return nil, err
	}
	a, err := x.store.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	pods, err := x.store.Pods(ctx, a)
	if err != nil {
		return nil, err
	}
	if name != "" {
		pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return p.Name != name })
		if len(pods) == 0 {
			return nil, problem.Errorf(problem.NotFound, "name one of the App's pods, or none for the newest", "App %s has no pod %s", key, name).WithField("query.pod")
		}
	}
	slices.SortFunc(pods, func(x, y *corev1.Pod) int {
		if workload.PodReady(x) != workload.PodReady(y) {
			if workload.PodReady(x) {
				return -1
			}
			return 1
		}
		return y.CreationTimestamp.Compare(x.CreationTimestamp.Time)
	})
	return running(pods, key, container)
}

// running returns the first pod in which the container runs.
func running(pods []*corev1.Pod, key runnerapi.Key, container string) (*corev1.Pod, error) {
	known := len(pods) == 0
	for _, pod := range pods {
		if pod.DeletionTimestamp == nil && runsIn(pod, container) {
			return pod, nil
		}
		known = known || slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Name == container })
	}
	if !known {
		return nil, problem.Errorf(problem.NotFound, "name one of the pod's containers, or none for the App's own",
			"App %s has no container %q", key, container).WithField("query.container")
	}
	return nil, problem.Errorf(problem.Conflict, "see what is wrong with it: its status says so, and its log", "no pod of App %s runs", key)
}

func runsIn(pod *corev1.Pod, container string) bool {
	return slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool {
		return c.Name == container && c.State.Running != nil
	})
}

// sizeQueue is a terminal's sizes as Kubernetes' client wants them.
type sizeQueue struct {
	ctx   context.Context //nolint:containedctx // the interface has none
	sizes <-chan runnerapi.TerminalSize
}

// Next implements remotecommand.TerminalSizeQueue.
func (q sizeQueue) Next() *remotecommand.TerminalSize {
	select {
	case size, ok := <-q.sizes:
		if !ok {
			return nil
		}
		return &remotecommand.TerminalSize{Width: size.Width, Height: size.Height}
	case <-q.ctx.Done():
		return nil
	}
}
