package announce

import (
	"context"
	"fmt"
	"reflect"
	"time"
)

const snapshotTimeout = time.Minute

// Handle applies one event to the directory. It is a [Handler]; Run calls it for the configured
// queue.
func (d *Directory) Handle(_ context.Context, e Event) error {
	change := Change{Type: e.Type, Time: e.Time}
	switch {
	case e.Type.IsAgent():
		agent, err := e.Agent()
		if err != nil {
			return Permanent(err)
		}
		change.Agent = agent
	case e.Type.IsRoute():
		route, err := e.Route()
		if err != nil {
			return Permanent(err)
		}
		change.Route = &route
	case e.Type.IsAlert():
		alert, err := e.Alert()
		if err != nil {
			return Permanent(err)
		}
		change.Alert = &alert
	default:
		app, err := e.App()
		if err != nil {
			return Permanent(err)
		}
		change.App = &app
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.lastSequence(e.AgentID)
	if e.Sequence <= known {
		return nil // a duplicate, or from before the snapshot
	}
	if known == 0 && e.Time.Before(d.asOf) {
		// The event waited while we were away, and the agent has gone since. Or it is new, and the
		// clocks differ. A snapshot decides.
		d.Refresh()
		return nil
	}
	if e.Sequence != known+1 {
		d.log.Debug().Str("agent", e.AgentID).Uint64("had", known).Uint64("got", e.Sequence).Msg("announcements were missed")
		d.Refresh()
	}
	d.apply(e, &change)
	d.tell(change)
	return nil
}

func (d *Directory) lastSequence(id string) uint64 {
	if e, ok := d.entries[id]; ok {
		return e.agent.Sequence
	}
	return d.removed[id].agent.Sequence
}

// apply updates the agent from the event, also after a gap: an agent event carries the whole agent.
func (d *Directory) apply(e Event, change *Change) {
	d.clock++
	switch {
	case e.Type == AgentRemoved:
		delete(d.entries, e.AgentID)
		d.removed[e.AgentID] = entry{agent: change.Agent, touched: d.clock}
	case e.Type.IsAgent():
		delete(d.removed, e.AgentID)
		d.entries[e.AgentID] = entry{agent: change.Agent, touched: d.clock}
	default:
		known, ok := d.entries[e.AgentID]
		if !ok { // the snapshot that the gap asked for brings it
			change.Agent = Agent{ID: e.AgentID}
			return
		}
		known.agent.Sequence, known.touched = e.Sequence, d.clock
		d.entries[e.AgentID] = known
		change.Agent = known.agent
	}
}

// sync applies a snapshot to the directory, except where events have reported changes since it was
// requested.
func (d *Directory) sync(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	d.mu.Lock()
	began, asked := d.clock, time.Now()
	d.mu.Unlock()
	agents, err := d.snapshot(ctx)
	if err != nil {
		return err
	}
	for i := range agents {
		if err := agents[i].Validate(); err != nil {
			return fmt.Errorf("snapshot: agents[%d].%w", i, err)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replace(agents, began)
	d.asOf = asked
	return nil
}

func (d *Directory) replace(agents []Agent, began uint64) {
	listed := make(map[string]bool, len(agents))
	for _, agent := range agents {
		listed[agent.ID] = true
		if gone, ok := d.removed[agent.ID]; ok && gone.touched > began && gone.agent.Sequence > agent.Sequence {
			continue
		}
		had, known := d.entries[agent.ID]
		if known && had.touched > began && had.agent.Sequence > agent.Sequence {
			continue
		}
		d.entries[agent.ID] = entry{agent: agent, touched: had.touched}
		if t, changed := difference(had.agent, agent, known); changed {
			d.tell(Change{Type: t, Agent: agent, Time: time.Now()})
		}
	}
	for id, e := range d.entries {
		if !listed[id] && e.touched <= began {
			delete(d.entries, id)
			d.tell(Change{Type: AgentRemoved, Agent: e.agent, Time: time.Now()})
		}
	}
	for id, e := range d.removed {
		if e.touched <= began {
			delete(d.removed, id)
		}
	}
}

// difference returns the type of the event that would have announced what a snapshot showed.
func difference(had, got Agent, known bool) (Type, bool) {
	switch {
	case !known:
		return AgentRegistered, true
	case had.State != got.State && got.State == StateOnline:
		return AgentOnline, true
	case had.State != got.State && got.State == StateOffline:
		return AgentOffline, true
	}
	// Passing time is not a change.
	had.LastSeen, had.Sequence = got.LastSeen, got.Sequence
	return AgentUpdated, !reflect.DeepEqual(had, got)
}
