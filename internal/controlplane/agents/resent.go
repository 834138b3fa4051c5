package agents

import (
	"context"
	"errors"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// leaders is where the last events' leaderships are looked up: the store, or a transaction in it.
type leaders interface {
	EventLeader(ctx context.Context, agentID string) (store.EventLeader, error)
}

// lostEvents reports whether the database does not have the last events that it has accepted from
// an agent, because it was restored from an older backup.
func lostEvents(ctx context.Context, in leaders, agentID string, last controlapi.Leadership) (bool, error) {
	known, err := in.EventLeader(ctx, agentID)
	if errors.Is(err, store.ErrNotFound) {
		return true, nil
	}
	return err == nil && (known.Lease != last.Lease || known.Before(leaderOf(agentID, last))), err
}

func leaderOf(agentID string, l controlapi.Leadership) store.EventLeader {
	return store.EventLeader{AgentID: agentID, Lease: l.Lease, Term: l.Term, Call: l.Call}
}

// unknown returns the events of a call. Of current states, it returns those that are not the last
// known ones, and the ends of the Apps that are missing.
func unknown(ctx context.Context, tx *store.Tx, agentID string, call controlapi.EventsRequest) ([]controlapi.Event, error) {
	if call.Current == nil {
		return call.Events, nil
	}
	known, err := lastOfApps(ctx, tx, agentID)
	if err != nil {
		return nil, err
	}
	var events []controlapi.Event
	for _, e := range call.Events {
		if e.App == nil {
			continue
		}
		key := runnerapi.Key{Namespace: e.App.Namespace, Name: e.App.Name}
		if last, there := known[key]; !there || string(last.kind) != e.Type || last.app.Generation != e.App.Generation || last.app.Cause != e.App.Cause {
			events = append(events, e)
		}
		delete(known, key)
	}
	for key, last := range known {
		if last.kind != announce.AppRemoved && call.Current.Has(key.Namespace, key.Name) {
			events = append(events, controlapi.Event{ID: "end-of-" + last.id, Type: string(announce.AppRemoved), App: &controlapi.AppEvent{
				Namespace: key.Namespace, Name: key.Name, Image: last.app.Image, Generation: last.app.Generation,
			}})
		}
	}
	return events, nil
}

// lastOfApp is the last known event of an App.
type lastOfApp struct {
	id   string
	kind announce.Type
	app  announce.AppEvent
}

func lastOfApps(ctx context.Context, tx *store.Tx, agentID string) (map[runnerapi.Key]lastOfApp, error) {
	list, err := tx.LastOfApps(ctx, agentID)
	if err != nil {
		return nil, err
	}
	last := map[runnerapi.Key]lastOfApp{}
	for _, e := range list {
		app, err := e.App()
		if err != nil {
			return nil, err
		}
		last[runnerapi.Key{Namespace: app.Namespace, Name: app.Name}] = lastOfApp{e.ID, e.Type, app}
	}
	return last, nil
}
