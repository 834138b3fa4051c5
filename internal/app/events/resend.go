package events

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/leader"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
)

// Range is a range of Apps in the order of NAMESPACE/NAME.
type Range struct {
	After   string // before the first App; empty for the beginning
	Through string // the last App; empty for the end
}

// Accepted returns the last call that the control plane accepted; the zero value for none.
func (n *Sender) Accepted() leader.Leadership {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.accepted
}

// Resend makes the Sender send the current states of all Apps: the control plane lost events that
// it had accepted, because it was restored from an older backup.
func (n *Sender) Resend() {
	n.mu.Lock()
	n.accepted, n.lost = leader.Leadership{}, true
	n.mu.Unlock()
	n.Look()
}

func (n *Sender) hasLost() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.lost
}

// acceptedOf returns the last accepted call of a leadership; 0 for none.
func (n *Sender) acceptedOf(by leader.Leadership) int64 {
	if last := n.Accepted(); last.Lease == by.Lease && last.Term == by.Term {
		return last.Call
	}
	return 0
}

func (n *Sender) accept(by leader.Leadership) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.accepted = by
}

// resend sends the current states of all Apps, after a loss and at the beginning of a leadership:
// no replica noted the Apps that ended while none led. Ends come first: the control plane takes an
// App that is missing for ended, and would announce its end twice.
func (n *Sender) resend(ctx context.Context) error {
	var apps v1alpha1.List
	if err := n.store.Cached.List(ctx, &apps, appcache.Untouched); err != nil {
		return fmt.Errorf("list Apps: %w", err)
	}
	ended, err := n.ends(ctx)
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(ended, maxBatch) {
		if err := n.report(ctx, Call{By: n.by, Events: batch}); err != nil {
			return err
		}
		if err := n.remember(ctx, batch); err != nil {
			return err
		}
	}
	for _, call := range calls(apps.Items) {
		call.By = n.by
		if err := n.report(ctx, call); err != nil {
			return err
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost, n.compared = false, true
	return nil
}

// calls returns the calls by which the current states of all Apps are sent, at least one.
func calls(apps []v1alpha1.App) (all []Call) {
	var states []Event
	for i := range apps {
		if apps[i].Status.Announced != nil {
			states = append(states, current(&apps[i]))
		}
	}
	slices.SortFunc(states, func(a, b Event) int { return strings.Compare(a.key(), b.key()) })
	after := ""
	for batch := range slices.Chunk(states, maxBatch) {
		through := batch[len(batch)-1].key()
		all = append(all, Call{Events: batch, Current: &Range{After: after, Through: through}})
		after = through
	}
	if len(all) == 0 {
		return []Call{{Current: &Range{}}}
	}
	all[len(all)-1].Current.Through = ""
	return all
}

// current returns the App's last announced state as an event. It has the ID of the announcement.
func current(a *v1alpha1.App) Event {
	state := *a.Status.Announced
	ev := event(a, typeOf(state.Phase), state)
	ev.Replicas, ev.Ready, ev.Cause = desiredReplicas(a), a.Status.ReadyReplicas, state.Cause
	if d := a.Status.Diagnosis; d != nil && d.Cause == state.Cause {
		ev.Message, ev.Fix = v1alpha1.Bounded(d.Message), v1alpha1.Bounded(d.Fix)
	}
	return ev
}

func (e Event) key() string { return e.Namespace + "/" + e.Name }
