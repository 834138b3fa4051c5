package store

import (
	"context"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// outboxBatchBytes bounds what is read of the outbox at once, whatever the number of
// events: one may have 256 KiB.
const outboxBatchBytes = 8 << 20

// OutboxState is what waits to be announced.
type OutboxState struct {
	Length int
	Bytes  int64
	// Oldest is when the first of them happened; zero when none waits.
	Oldest time.Time
}

// OutboxLimits say from when on an outbox is made shorter, and how short.
type OutboxLimits struct {
	// PerAgent and Events are numbers of events, of one agent and in total; Bytes is
	// the size of all.
	PerAgent, Events int
	Bytes            int64
}

// keep is what is left when a limit was passed: a quarter less, so that not each
// further event has the outbox gone through.
func (l OutboxLimits) keep() OutboxLimits {
	return OutboxLimits{l.PerAgent - l.PerAgent/4, l.Events - l.Events/4, l.Bytes - l.Bytes/4}
}

// Queued is an event that is still to be announced.
type Queued struct {
	ID    int64
	Event announce.Event
}

// Outbox lists the first events that are still to be announced.
func (q queries) Outbox(ctx context.Context, limit int) ([]Queued, error) {
	waiting, err := q.Waiting(ctx, 0, limit)
	if err != nil {
		return nil, err
	}
	list := make([]Queued, len(waiting))
	for i, w := range waiting {
		list[i].ID = w.ID
		if list[i].Event, err = announce.Decode(w.Event.Body); err != nil {
			return nil, fmt.Errorf("database: outbox: row %d: %w", w.ID, err)
		}
	}
	return list, nil
}

// Waiting is an event that is still to be announced, in the form in which it goes out.
type Waiting struct {
	ID    int64
	Event announce.Encoded
}

// Waiting lists the first events past that ID that are still to be announced, fewer
// than asked for where they are large.
func (q queries) Waiting(ctx context.Context, past int64, limit int) ([]Waiting, error) {
	rows, err := q.q.QueryContext(ctx, `SELECT id, event_id, agent_id, type, at, body FROM outbox WHERE id > $1 ORDER BY id LIMIT $2`, past, limit)
	if err != nil {
		return nil, fmt.Errorf("database: outbox: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var list []Waiting
	for size := 0; size < outboxBatchBytes && rows.Next(); {
		var w Waiting
		if err := scanWaiting(rows, &w); err != nil {
			return nil, fmt.Errorf("database: outbox: row %d: %w", w.ID, err)
		}
		list, size = append(list, w), size+len(w.Event.Body)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("database: outbox: %w", err)
	}
	return list, nil
}

func scanWaiting(row scanner, w *Waiting) error {
	e := &w.Event
	return row.Scan(&w.ID, &e.ID, &e.AgentID, &e.Type, moment{&e.Time}, &e.Body)
}

// Addressee is what of an agent says whom its events are for.
type Addressee struct {
	ID      string
	Labels  map[string]string
	Revoked bool
}

// AgentsWaiting lists the agents that the events between two IDs of the outbox are
// about, but for those that are gone.
func (q queries) AgentsWaiting(ctx context.Context, from, to int64) ([]Addressee, error) {
	return all(ctx, q.q, func(row scanner, a *Addressee) error {
		var revoked time.Time
		err := row.Scan(&a.ID, document{&a.Labels}, moment{&revoked})
		a.Revoked = !revoked.IsZero()
		return err
	}, `SELECT id, labels, revoked_at FROM agents WHERE id IN (SELECT agent_id FROM outbox WHERE id BETWEEN $1 AND $2)`, from, to)
}

// OutboxState counts what waits.
func (q queries) OutboxState(ctx context.Context) (OutboxState, error) {
	var s OutboxState
	// In order of their IDs, not of their times: an agent's clock says when an App's
	// event was, and ours how long it has waited would be another column.
	err := q.q.QueryRowContext(ctx, `SELECT COUNT(*), COALESCE(SUM(size), 0),
		COALESCE((SELECT at FROM outbox ORDER BY id LIMIT 1), 0) FROM outbox`).Scan(&s.Length, &s.Bytes, moment{&s.Oldest})
	if err != nil {
		return s, fmt.Errorf("database: outbox: %w", err)
	}
	return s, nil
}

// Shorten drops events that a later one in the outbox supersedes, the oldest first,
// if a limit is passed. The last word about each agent and App stays, whatever the
// limits say. It answers how many were dropped, and whether a limit was passed.
func (s *Store) Shorten(ctx context.Context, limits OutboxLimits) (dropped int64, over bool, err error) {
	if over, err = s.outboxOver(ctx, limits); err != nil || !over {
		return 0, over, err
	}
	keep := limits.keep()
	dropped, err = s.exec(ctx, `DELETE FROM outbox WHERE id IN (SELECT id FROM (
			SELECT id,
				LEAD(id) OVER (PARTITION BY agent_id, subject ORDER BY id) AS later,
				ROW_NUMBER() OVER (PARTITION BY agent_id ORDER BY id DESC) AS of_agent,
				ROW_NUMBER() OVER (ORDER BY id DESC) AS of_all,
				SUM(size) OVER (ORDER BY id DESC) AS bytes
			FROM outbox) AS waiting
		WHERE later IS NOT NULL AND (of_agent > $1 OR of_all > $2 OR bytes > $3))`,
		keep.PerAgent, keep.Events, keep.Bytes)
	return dropped, true, err
}

// outboxOver says whether a limit is passed. An outbox that is short, as it is while
// there is a broker, is told by its ends.
func (q queries) outboxOver(ctx context.Context, limits OutboxLimits) (bool, error) {
	var span int64
	err := q.q.QueryRowContext(ctx, `SELECT COALESCE(MAX(id) - MIN(id) + 1, 0) FROM outbox`).Scan(&span)
	if err != nil {
		return false, fmt.Errorf("database: outbox: %w", err)
	}
	if span <= int64(limits.PerAgent) && span <= int64(limits.Events) && span*announce.MaxEventSize <= limits.Bytes {
		return false, nil
	}
	state, err := q.OutboxState(ctx)
	if err != nil || state.Length > limits.Events || state.Bytes > limits.Bytes {
		return err == nil, err
	}
	var most int
	err = q.q.QueryRowContext(ctx, `SELECT COALESCE(MAX(n), 0) FROM (SELECT COUNT(*) AS n FROM outbox GROUP BY agent_id) AS counts`).Scan(&most)
	if err != nil {
		return false, fmt.Errorf("database: outbox: %w", err)
	}
	return most > limits.PerAgent, nil
}

// subjectOf is what an event is the state of. A change of an agent says all of the
// agent; its beginning, its end and that it was cloned are news in themselves, of which
// only another of the same kind says as much.
func subjectOf(e announce.Event) string {
	switch e.Type {
	case announce.AgentOnline, announce.AgentOffline, announce.AgentUpdated:
		return "agent"
	}
	if app, err := e.App(); err == nil {
		return "app/" + app.Namespace + "/" + app.Name
	}
	return string(e.Type)
}
