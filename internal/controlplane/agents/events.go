package agents

import (
	"cmp"
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// Events implements controlapi.Backend.
func (r *Fleet) Events(ctx context.Context, agentID string, told controlapi.EventsRequest) error {
	now := r.cfg.Now()
	return r.store.Update(ctx, func(tx *store.Tx) error {
		if err := inOrder(ctx, tx, agentID, told.Leader); err != nil {
			return err
		}
		events, err := unknown(ctx, tx, agentID, told)
		if err != nil {
			return err
		}
		for _, e := range events {
			fresh, err := tx.Received(ctx, agentID, e.ID, now)
			if err != nil {
				return err
			}
			if !fresh {
				continue
			}
			if e.Time.IsZero() {
				e.Time = now
			}
			err = discovery.Announce(ctx, tx, agentID, now, func(source string, sequence uint64) (announce.Event, error) {
				return announcement(source, agentID, e, sequence)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// inOrder refuses late events of a leader if its successor, or its own later call, has already
// been heard: it would report an App that is gone as existing. The lease by which replicas elect
// does not prevent that, since a request can be delayed for longer.
func inOrder(ctx context.Context, tx *store.Tx, agentID string, by *controlapi.Leadership) error {
	if by == nil {
		return nil
	}
	if by.After > 0 {
		last := *by
		last.Call = by.After
		if lost, err := lostEvents(ctx, tx, agentID, last); err != nil || lost {
			return cmp.Or(err, error(controlapi.Errorf(problem.Conflict, "send the current states of all Apps",
				"the database does not have the agent's last events: it was restored from an older backup")))
		}
	}
	newest, err := tx.Leads(ctx, leaderOf(agentID, *by))
	if err == nil && !newest {
		err = controlapi.Errorf(problem.Conflict, "nothing to do: the outcome of the Apps has been announced since",
			"these events are of a replica that leads no more, or came after later ones of its own (term %d, call %d)", by.Term, by.Call)
	}
	return err
}

// announcement returns what Runners hear of an agent's event.
func announcement(source, agentID string, e controlapi.Event, sequence uint64) (announce.Event, error) {
	if e.Alert != nil {
		return announce.NewAlertEvent(announce.Type(e.Type), source, agentID, alertEventOf(*e.Alert), sequence, e.Time)
	}
	if e.App == nil {
		return announce.Event{}, controlapi.Errorf(problem.Invalid, "send an App or an alert", "the event %s is about nothing", e.ID)
	}
	return announce.NewAppEvent(announce.Type(e.Type), source, agentID, appEventOf(*e.App), sequence, e.Time)
}

func alertEventOf(a controlapi.AlertEvent) announce.AlertEvent {
	about := announce.AlertEvent{
		Fingerprint: a.Fingerprint, Name: printable.Text(a.Name), Severity: printable.Text(a.Severity),
		Namespace: a.Namespace, App: a.App, Summary: printable.Text(a.Summary), StartedAt: a.StartedAt,
	}
	if about.Namespace == "" {
		about.App = ""
	}
	return about
}

func appEventOf(a controlapi.AppEvent) announce.AppEvent {
	return announce.AppEvent{
		Namespace: a.Namespace, Name: a.Name, Image: a.Image, Generation: a.Generation,
		Replicas: int(a.Replicas), Ready: int(a.Ready), LastRun: a.LastRun, Cause: a.Cause, Message: printable.Lines(a.Message), Fix: printable.Lines(a.Fix),
	}
}
