package manifests

import (
	"context"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/workloadhealth"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Pauses between looks at what is not ready yet.
const (
	firstPause = 250 * time.Millisecond
	lastPause  = 2 * time.Second
)

// establishLimit is how long a new kind may take to be served.
const establishLimit = 30 * time.Second

// stateOf returns how an object is, by its own status.
func stateOf(u *unstructured.Unstructured) (runnerapi.ObjectState, string) {
	if u == nil {
		return runnerapi.ObjectMissing, "it is not in the cluster"
	}
	result, err := status.Compute(u)
	if err != nil {
		return runnerapi.ObjectUnknown, "its status cannot be understood"
	}
	switch result.Status {
	case status.CurrentStatus:
		return runnerapi.ObjectReady, ""
	case status.FailedStatus:
		return runnerapi.ObjectFailed, clip(result.Message)
	case status.NotFoundStatus:
		return runnerapi.ObjectMissing, clip(result.Message)
	}
	return runnerapi.ObjectInProgress, clip(result.Message)
}

// how returns the state of an object that was just read: workloads are checked as Apps are, and
// those that become Secrets by what their operators say.
func (r *run) how(ctx context.Context, u *unstructured.Unstructured) workloadhealth.Report {
	if now, going := workloadhealth.Going(ctx, r.api.objects, u); going {
		now.Message = clip(now.Message)
		return now
	}
	state, message := stateOf(u)
	if u == nil || r.applier.config.Workloads == nil {
		return workloadhealth.Report{State: state, Message: message}
	}
	report, runs, err := r.applier.config.Workloads.Check(ctx, u)
	switch {
	case err != nil:
		return workloadhealth.Report{State: runnerapi.ObjectUnknown, Message: asProblem(err).Detail}
	case runs:
		report.Message = clip(report.Message)
		return report
	}
	return workloadhealth.Report{State: state, Message: message}
}

// maxMessage bounds an object's own text, in bytes.
const maxMessage = 512

func clip(text string) string { return printable.Shorten(text, maxMessage) }

// await looks at the objects until they are ready and what was pruned is gone, or until that will
// not be, the time is up, or ctx ends. It looks once in any case.
func (r *run) await(ctx context.Context) {
	end := time.Now().Add(r.opts.Wait)
	for next := firstPause; ; next = min(2*next, lastPause) {
		open, broken := r.look(ctx)
		open = r.lookForGone(ctx) || open
		if !open || broken || time.Until(end) < next || !retry.Wait(ctx, next) {
			break
		}
	}
	if held, complete := r.held(); complete != r.next.complete || len(held) != len(r.next.entries) {
		r.settle(ctx)
	}
}

// look reads those that are not ready. It reports whether one is not ready yet, and whether
// something is known to be wrong.
func (r *run) look(ctx context.Context) (open, broken bool) {
	var group errgroup.Group
	group.SetLimit(atATime)
	for _, i := range r.items {
		if i.out.Action == runnerapi.ApplyFailed || i.out.State == runnerapi.ObjectReady {
			continue
		}
		group.Go(func() error {
			if err := orAbsent(r.find(ctx, i)); err != nil {
				i.out.State, i.out.Message = runnerapi.ObjectUnknown, asProblem(err).Detail
				return nil
			}
			now := r.how(ctx, i.live)
			i.out.State, i.out.Message, i.out.Diagnosis, i.out.LastLines = now.State, now.Message, now.Diagnosis, now.LastLines
			i.live = nil
			return nil
		})
	}
	_ = group.Wait() // none fails
	for _, i := range r.items {
		switch i.out.State {
		case runnerapi.ObjectFailed:
			broken = true
		case runnerapi.ObjectInProgress, runnerapi.ObjectUnknown, runnerapi.ObjectMissing:
			open = true
		}
	}
	return open, broken
}

// established waits until a CustomResourceDefinition's kinds are served, so that the
// set's objects of these can follow.
func (r *run) established(ctx context.Context, i *item) error {
	ctx, cancel := context.WithTimeout(ctx, establishLimit)
	defer cancel()
	for {
		if err := orAbsent(r.find(ctx, i)); err != nil {
			return err
		}
		switch state, message := stateOf(i.live); state {
		case runnerapi.ObjectReady:
			return nil
		case runnerapi.ObjectFailed:
			return problem.Errorf(problem.Invalid, "correct the definition", "the cluster does not accept its names: %s", message)
		}
		if !retry.Wait(ctx, firstPause) {
			return problem.Errorf(problem.Timeout, "apply it again", "the cluster does not serve its kinds after %s", establishLimit)
		}
	}
}
