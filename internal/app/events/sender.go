package events

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/leader"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	maxBatch      = 100
	announceLimit = 30 * time.Second // for one batch to be accepted
	firstBackoff  = 500 * time.Millisecond
	maxBackoff    = 30 * time.Second
)

// Sender reports to the control plane what happened to every App, in order. An App's status
// holds what is still to be announced and what was announced last. So nothing is lost when the
// agent restarts or the control plane is down.
type Sender struct {
	store    *appcache.Store
	election *leader.Election
	send     func(ctx context.Context, call Call) error
	log      zerolog.Logger
	wake     wake.Signal
	heard    *leader.Term      // the leadership that the control plane knows of
	by       leader.Leadership // its name
	calls    int64             // that were made or tried
	compared bool              // since this leadership began, the control plane knows which Apps there are
	tombstones

	mu       sync.Mutex
	accepted leader.Leadership // the last call that the control plane accepted
	lost     bool              // the control plane lost events that it had accepted
	ended    []Event           // of Apps that are gone, and have no tombstone yet
}

// Call is what is sent at once.
type Call struct {
	By leader.Leadership
	// After is the last call of this leadership that was accepted; 0 for none.
	After  int64
	Events []Event
	// Current is set if the events are the current states of all Apps in this range.
	Current *Range
}

// New returns a Sender that keeps the ends of Apps in a ConfigMap of this namespace.
// If send is nil, nothing is announced.
func New(
	store *appcache.Store, election *leader.Election, namespace string,
	send func(ctx context.Context, call Call) error, log zerolog.Logger,
) *Sender {
	return &Sender{
		store: store, election: election, send: send, log: log, wake: wake.New(),
		tombstones: tombstones{client: store.Live, namespace: namespace},
	}
}

// Look makes the sender of events compare again.
func (n *Sender) Look() {
	n.wake.Raise()
}

// Start implements manager.Runnable. It runs until ctx ends.
func (n *Sender) Start(ctx context.Context) error {
	if n.send == nil {
		return nil
	}
	wait := retry.Backoff(firstBackoff, maxBackoff)
	for {
		more, err := n.round(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the end is not a failure: what was not announced is kept
		case err != nil:
			pause := wait.NextBackOff()
			n.log.Warn().Err(err).Dur("again_in", pause).Msg("the control plane did not accept the Apps' events; keeping them")
			if !retry.Wait(ctx, pause) {
				return nil
			}
		case more:
			wait.Reset()
		default:
			wait.Reset()
			if !n.wake.Wait(ctx) {
				return nil
			}
		}
	}
}

// round announces one batch and reports whether there may be more.
func (n *Sender) round(ctx context.Context) (more bool, err error) {
	r := n.election.Current()
	if r == nil {
		return false, nil
	}
	batch, err := n.batch(ctx)
	switch {
	case err != nil:
		return false, err
	case n.heard != r:
		return true, n.introduce(ctx, r) // and then check again what to announce
	case n.hasLost(), len(batch) == 0 && !n.compared: // an App that was not announced would count as missing
		return true, n.resend(ctx)
	case len(batch) == 0:
		return false, nil
	}
	if err := n.report(ctx, Call{By: n.by, Events: batch}); err != nil {
		return false, err
	}
	return true, n.remember(ctx, batch)
}

// report makes one call to the control plane. Each call has its own number, because a call that
// failed here may still arrive there, after the next. It could then report an App that the next
// call reported as gone.
func (n *Sender) report(ctx context.Context, call Call) error {
	ctx, cancel := context.WithTimeout(ctx, announceLimit)
	defer cancel()
	n.calls++
	call.By.Call, call.After = n.calls, n.acceptedOf(call.By)
	err := n.send(ctx, call)
	switch {
	case err == nil:
		n.accept(call.By)
	case problem.Is(err, problem.Conflict):
		n.Resend()
	}
	return err
}

// introduce announces the new leader to the control plane before any event. From then on, the
// control plane refuses calls of a former leader that was held up and does not know yet that it
// lost the lease. What the former leader reported until then has happened in the cluster before, so
// the next events are computed after this call.
func (n *Sender) introduce(ctx context.Context, r *leader.Term) error {
	by, err := n.election.Identity(ctx, r)
	if err != nil {
		return err
	}
	if err := n.report(ctx, Call{By: by}); err != nil {
		return err
	}
	if err := n.election.CatchUp(ctx); err != nil {
		return err
	}
	n.Reread()
	n.heard, n.by, n.compared = r, by, false
	return nil
}

// batch returns what is to be announced now. It lists Apps before it reads the tombstones, and
// sends tombstones first. So the end of an App comes before the beginning of a new App of the same
// name.
func (n *Sender) batch(ctx context.Context) ([]Event, error) {
	var apps v1alpha1.List
	if err := n.store.Cached.List(ctx, &apps, appcache.Untouched); err != nil {
		return nil, fmt.Errorf("list Apps: %w", err)
	}
	batch, err := n.ends(ctx)
	if err != nil {
		return nil, err
	}
	batch = append(batch, living(apps.Items, batch)...)
	return batch[:min(len(batch), maxBatch)], nil
}

// living returns the events of Apps that have not ended, App by App. The end of an App supersedes
// its waiting events: after it, none of the App's events is sent, although the cache still holds
// the App for a while.
func living(apps []v1alpha1.App, dead []Event) (all []Event) {
	ended := map[types.UID]bool{}
	for _, ev := range dead {
		ended[ev.uid] = true
	}
	for i := range apps {
		if a := &apps[i]; a.DeletionTimestamp.IsZero() && !ended[a.UID] {
			all = append(all, events(a)...)
		}
	}
	slices.SortFunc(all, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.done.Sequence, b.done.Sequence))
	})
	return all
}

// remember records what was accepted. If a record is lost here, the event is sent again with the
// same ID.
func (n *Sender) remember(ctx context.Context, batch []Event) error {
	var gone []types.UID
	for i, ev := range batch {
		if ev.Type == Removed {
			gone = append(gone, ev.uid)
			continue
		}
		if i+1 < len(batch) && batch[i+1].uid == ev.uid {
			continue // the last one supersedes those before it
		}
		err := n.store.PatchStatus(ctx, runnerapi.Key{Namespace: ev.Namespace, Name: ev.Name}, ev.uid, map[string]any{"announced": announcedPatch(ev.done)})
		if err != nil {
			return fmt.Errorf("note that App %s/%s was announced: %w", ev.Namespace, ev.Name, err)
		}
	}
	return n.clear(ctx, gone)
}

// announcedPatch names every field, so that an empty value replaces an old one.
func announcedPatch(a v1alpha1.Announced) map[string]any {
	return map[string]any{
		"phase": a.Phase, "generation": a.Generation, "cause": a.Cause, "restart": a.Restart, "sequence": a.Sequence,
	}
}
