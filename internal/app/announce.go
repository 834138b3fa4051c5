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

// announcer tells the control plane what became of every App, in order. What is to be
// announced waits in the App's status, and what was announced last stands beside it: so
// nothing is lost when the agent restarts or the control plane is away.
type announcer struct {
	e     *Engine
	wake  chan struct{}
	heard *reign     // the leadership that the control plane knows of
	by    Leadership // what it is called
	calls int64      // that were made, or tried
	graves
}

func newAnnouncer(e *Engine) *announcer {
	return &announcer{e: e, wake: make(chan struct{}, 1), graves: graves{client: e.live, namespace: e.cfg.Namespace}}
}

// look has the announcer compare again.
func (n *announcer) look() { wake(n.wake) }

// Start runs until ctx ends. It makes announcer a manager.Runnable.
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

// round announces one batch and says whether there may be more.
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
		return true, n.introduce(sending, r) // and then look again at what is to be told
	}
	if err := n.tell(sending, n.by, batch); err != nil {
		return false, err
	}
	return true, n.remember(ctx, batch)
}

// tell is a call to the control plane. Each has a number of its own, since one that failed here may arrive there
// yet, after the next: with what an App was that the next one said is gone.
func (n *announcer) tell(ctx context.Context, by Leadership, batch []Event) error {
	n.calls++
	by.Call = n.calls
	return n.e.cfg.Announce(ctx, by, batch)
}

// introduce has the control plane hear who leads, before anything is told. From then on it refuses what
// a former leader tells, that was held and does not know yet that it leads no more. What that one told until then
// has happened in the cluster before: so what is told next is looked at after it.
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

// batch is what is to be announced now. Apps are listed before the graves are
// read, and graves sent first: so the end of an App comes before the beginning
// of its namesake.
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

// living are the events of Apps that have not ended, App by App. An App's end stands for what still
// waited: after it nothing of the App is told, though the cache has it for a while yet.
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

// remember notes what was accepted. What is lost here is sent once more, with
// the same ID.
func (n *announcer) remember(ctx context.Context, batch []Event) error {
	var gone []types.UID
	for i, ev := range batch {
		if ev.Type == EventRemoved {
			gone = append(gone, ev.uid)
			continue
		}
		if i+1 < len(batch) && batch[i+1].uid == ev.uid {
			continue // the last one stands for those before
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"uid": ev.uid}, // not of a namesake
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

// announcedPatch names every field, so that an empty one replaces an old one.
func announcedPatch(a Announced) map[string]any {
	return map[string]any{
		"phase": a.Phase, "generation": a.Generation, "cause": a.Cause, "restart": a.Restart, "sequence": a.Sequence,
	}
}
