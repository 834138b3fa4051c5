package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

const (
	maxBatch      = 100
	announceLimit = 30 * time.Second // for one batch to be accepted
	firstBackoff  = 500 * time.Millisecond
	maxBackoff    = 30 * time.Second
)

// announcer reports to the control plane what happened to every App, in order. An App's status
// holds what is still to be announced and what was announced last. So nothing is lost when the
// agent restarts or the control plane is down.
type announcer struct {
	e     *Engine
	wake  chan struct{}
	heard *reign     // the leadership that the control plane knows of
	by    Leadership // its name
	calls int64      // that were made or tried
	tombstones
}

func newAnnouncer(e *Engine) *announcer {
	return &announcer{e: e, wake: make(chan struct{}, 1), tombstones: tombstones{client: e.live, namespace: e.cfg.Namespace}}
}

// look makes the announcer compare again.
func (n *announcer) look() { wake(n.wake) }

// Start implements manager.Runnable. It runs until ctx ends.
func (n *announcer) Start(ctx context.Context) error {
	if n.e.cfg.Announce == nil {
		return nil
	}
	wait := retry.Backoff(firstBackoff, maxBackoff)
	for {
		more, err := n.round(ctx)
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // the end is no failure: what was not announced is kept
		case err != nil:
			pause := wait.NextBackOff()
			n.e.log.Warn().Err(err).Dur("again_in", pause).Msg("the control plane did not take the Apps' events; keeping them")
			if !retry.Wait(ctx, pause) {
				return nil
			}
		case more:
			wait.Reset()
		default:
			wait.Reset()
			select {
			case <-ctx.Done():
				return nil
			case <-n.wake:
			}
		}
	}
}

// round announces one batch and reports whether there may be more.
func (n *announcer) round(ctx context.Context) (more bool, err error) {
	r := n.e.leadership.current()
	if r == nil {
		return false, nil
	}
	batch, err := n.batch(ctx)
	if err != nil || len(batch) == 0 {
		return false, err
	}
	sending, cancel := context.WithTimeout(ctx, announceLimit)
	defer cancel()
	if n.heard != r {
		return true, n.introduce(sending, r) // and then check again what to announce
	}
	if err := n.tell(sending, n.by, batch); err != nil {
		return false, err
	}
	return true, n.remember(ctx, batch)
}

// tell makes one call to the control plane. Each call has its own number, because a call that
// failed here may still arrive there, after the next. It could then report an App that the next
// call reported as gone.
func (n *announcer) tell(ctx context.Context, by Leadership, batch []Event) error {
	n.calls++
	by.Call = n.calls
	return n.e.cfg.Announce(ctx, by, batch)
}

// introduce announces the new leader to the control plane before any event. From then on, the
// control plane refuses calls of a former leader that was held up and does not know yet that it
// lost the lease. What the former leader reported until then has happened in the cluster before, so
// the next events are computed after this call.
func (n *announcer) introduce(ctx context.Context, r *reign) error {
	by, err := n.e.leadership.called(ctx, r)
	if err != nil {
		return err
	}
	if err := n.tell(ctx, by, nil); err != nil {
		return err
	}
	if err := n.e.catchUp(ctx); err != nil {
		return err
	}
	n.reread()
	n.heard, n.by = r, by
	return nil
}

// batch returns what is to be announced now. It lists Apps before it reads the tombstones, and
// sends tombstones first. So the end of an App comes before the beginning of a new App of the same
// name.
func (n *announcer) batch(ctx context.Context) ([]Event, error) {
	var apps List
	if err := n.e.cached.List(ctx, &apps, untouched); err != nil {
		return nil, fmt.Errorf("list Apps: %w", err)
	}
	batch, err := n.dead(ctx)
	if err != nil {
		return nil, err
	}
	batch = append(batch, living(apps.Items, batch)...)
	return batch[:min(len(batch), maxBatch)], nil
}

// living returns the events of Apps that have not ended, App by App. The end of an App supersedes
// its waiting events: after it, none of the App's events is sent, although the cache still holds
// the App for a while.
func living(apps []App, dead []Event) (all []Event) {
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
func (n *announcer) remember(ctx context.Context, batch []Event) error {
	var gone []types.UID
	for i, ev := range batch {
		if ev.Type == EventRemoved {
			gone = append(gone, ev.uid)
			continue
		}
		if i+1 < len(batch) && batch[i+1].uid == ev.uid {
			continue // the last one supersedes those before it
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": ev.uid}, // not of another App of that name
			"status":   map[string]any{"announced": announcedPatch(ev.done)},
		})
		if err != nil {
			return err
		}
		a := &App{ObjectMeta: metav1.ObjectMeta{Namespace: ev.Namespace, Name: ev.Name}}
		err = n.e.cached.Status().Patch(ctx, a, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(managed.FieldManager))
		if client.IgnoreNotFound(err) != nil && !isOtherUID(err) {
			return fmt.Errorf("note that App %s/%s was announced: %w", ev.Namespace, ev.Name, err)
		}
	}
	return n.clear(ctx, gone)
}

// announcedPatch names every field, so that an empty value replaces an old one.
func announcedPatch(a Announced) map[string]any {
	return map[string]any{
		"phase": a.Phase, "generation": a.Generation, "cause": a.Cause, "restart": a.Restart, "sequence": a.Sequence,
	}
}
