package announce

import (
	"context"
	"fmt"
	"reflect"
	"time"
)

const (
	snapshotTimeout = time.Minute
	// catchUpTimeout bounds how long an event waits for those before it.
	catchUpTimeout = 10 * time.Second
)

// Handle applies one event to the directory. It is a [Handler]; Run calls it for the configured
// queue. Events of Apps, hosts and alerts are news even if a snapshot has a higher sequence:
// snapshots have agents alone.
func (d *Directory) Handle(ctx context.Context, e Event) error {
	change, err := changeOf(e)
	if err != nil {
		return Permanent(err)
	}
	if had, missed := d.missed(e); missed {
		d.log.Debug().Str("agent", e.AgentID).Uint64("had", had).Uint64("previous", e.Previous).Msg("announcements were missed")
		d.Refresh()
		d.catchUp(ctx, e.AgentID, e.Sequence-1)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.take(e, change)
	return nil
}

// changeOf returns what watchers are told of an event, without the agent of an event about
// something else.
func changeOf(e Event) (Change, error) {
	change := Change{Type: e.Type, Time: e.Time, Sequence: e.Sequence}
	switch {
	case e.Type.IsAgent():
		agent, err := e.Agent()
		change.Agent = agent
		return change, err
	case e.Type.IsRoute():
		route, err := e.Route()
		change.Route = &route
		return change, err
	case e.Type.IsAlert():
		alert, err := e.Alert()
		change.Alert = &alert
		return change, err
	}
	app, err := e.App()
	change.App = &app
	return change, err
}

// missed reports whether an event does not follow those that the directory has. If the database of
// the control plane was restored, an event follows one that is older than the last handled one.
func (d *Directory) missed(e Event) (had uint64, missed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch heard := d.heard[e.AgentID]; {
	case e.Sequence <= heard:
		return heard, false
	case heard > 0:
		return heard, e.Previous != heard
	}
	known := d.lastSequence(e.AgentID)
	return known, e.Previous > known
}

// take applies an event that is not a repeat, and tells watchers. The lock is held.
func (d *Directory) take(e Event, change Change) {
	if e.Sequence <= d.heard[e.AgentID] {
		return
	}
	known := d.lastSequence(e.AgentID)
	if known == 0 && e.Time.Before(d.asOf) {
		// The event waited while we were away, and the agent has gone since. Or it is new, and the
		// clocks differ. A snapshot decides.
		d.Refresh()
		return
	}
	d.heard[e.AgentID] = e.Sequence
	if e.Type.IsAgent() && e.Sequence <= known {
		return // the snapshot had it
	}
	d.apply(e, &change)
	d.tell(change)
}

// catchUp takes the events of an agent's timeline between the last handled one and that sequence.
// It returns false if the timeline was not read.
func (d *Directory) catchUp(ctx context.Context, agentID string, upTo uint64) bool {
	d.mu.Lock()
	q := TimelineQuery{After: d.heard[agentID], Before: upTo + 1, OldestFirst: true, Limit: MaxTimelineLimit}
	d.mu.Unlock()
	if d.timeline == nil || q.After == 0 || q.After >= upTo {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	for more := true; more; {
		page, err := d.timeline(ctx, agentID, q)
		if err != nil {
			d.log.Warn().Err(err).Str("agent", agentID).Msg("failed to read missed announcements from the timeline")
			return false
		}
		d.takeAll(page.Events)
		q, more = page.Next(q), page.More && len(page.Events) > 0
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.heard[agentID] = max(d.heard[agentID], upTo)
	return true
}

func (d *Directory) takeAll(events []Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range events {
		if change, err := changeOf(e); err == nil { // decoding has checked it
			d.take(e, change)
		}
	}
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
		known.agent.Sequence, known.touched = max(known.agent.Sequence, e.Sequence), d.clock
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
	d.replace(agents, began)
	d.asOf = asked
	d.mu.Unlock()
	d.catchUpAll(ctx, agents)
	return nil
}

// catchUpAll reads what a directory missed that has no durable queue: it gets no event that was
// announced while it had no queue.
func (d *Directory) catchUpAll(ctx context.Context, agents []Agent) {
	if d.consumer != nil && !d.consumer.cfg.Queue.Transient {
		return
	}
	for _, agent := range agents {
		if d.begun(agent) && !d.catchUp(ctx, agent.ID, agent.Sequence) {
			return // the next snapshot leads here again
		}
	}
}

// begun reports whether events of the agent were handled before. If not, the agent's events begin
// after this snapshot.
func (d *Directory) begun(agent Agent) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.heard[agent.ID] == 0 {
		d.heard[agent.ID] = agent.Sequence
		return false
	}
	return true
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
			delete(d.heard, id)
			d.tell(Change{Type: AgentRemoved, Agent: e.agent, Time: time.Now()})
		}
	}
	for id, e := range d.removed {
		if e.touched <= began {
			delete(d.removed, id)
			if !listed[id] {
				delete(d.heard, id)
			}
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
