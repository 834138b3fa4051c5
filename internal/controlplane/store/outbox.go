package store

import (
	"context"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// outboxBatchBytes bounds what is read of the outbox at once, for any number of events: one event
// may have 256 KiB.
const outboxBatchBytes = 8 << 20

// OutboxState describes the announcements that wait.
type OutboxState struct {
	Length int
	Bytes  int64
	// Oldest is the time of the oldest waiting event; zero if none waits.
	Oldest time.Time
}

// OutboxLimits are the sizes at which an outbox is shortened.
type OutboxLimits struct {
	// PerAgent and Events are numbers of events, per agent and in total; Bytes is the size of all.
	PerAgent, Events int
	Bytes            int64
}

// keep returns what is left after a limit was exceeded: a quarter less, so that not every further
// event scans the outbox.
func (l OutboxLimits) keep() OutboxLimits {
	return OutboxLimits{l.PerAgent - l.PerAgent/4, l.Events - l.Events/4, l.Bytes - l.Bytes/4}
}

// Queued is an event that is still to be announced.
type Queued struct {
	ID    int64
	Event announce.Event
}

// outboxTable has the statements about announcements that wait.
type outboxTable struct{ table }

// Outbox returns the first events that are still to be announced.
func (q outboxTable) Outbox(ctx context.Context, limit int) ([]Queued, error) {
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

// Waiting is an event that is still to be announced, in its encoded form.
type Waiting struct {
	ID    int64
	Event announce.Encoded
}

// Waiting returns the first events past that ID that are still to be announced; fewer than asked
// for if they are large.
func (q outboxTable) Waiting(ctx context.Context, past int64, limit int) ([]Waiting, error) {
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

// Addressee is the part of an agent that determines whom its events are for.
type Addressee struct {
	ID      string
	Labels  map[string]string
	Revoked bool
}

// AgentsWaiting returns the agents of the events between two IDs of the outbox, without those that
// are gone.
func (q outboxTable) AgentsWaiting(ctx context.Context, from, to int64) ([]Addressee, error) {
	return all(ctx, q.q, func(row scanner, a *Addressee) error {
		var revoked time.Time
		err := row.Scan(&a.ID, document{&a.Labels}, moment{&revoked})
		a.Revoked = !revoked.IsZero()
		return err
	}, `SELECT id, labels, revoked_at FROM agents WHERE id IN (SELECT agent_id FROM outbox WHERE id BETWEEN $1 AND $2)`, from, to)
}

// OutboxState returns the counts of what waits.
func (q outboxTable) OutboxState(ctx context.Context) (OutboxState, error) {
	var s OutboxState
	// Ordered by ID, not by time: the time of an App's event comes from the agent's clock, and the
	// waiting time by our clock would need another column.
	err := q.q.QueryRowContext(ctx, `SELECT COUNT(*), COALESCE(SUM(size), 0),
		COALESCE((SELECT at FROM outbox ORDER BY id LIMIT 1), 0) FROM outbox`).Scan(&s.Length, &s.Bytes, moment{&s.Oldest})
	if err != nil {
		return s, fmt.Errorf("database: outbox: %w", err)
	}
	return s, nil
}

// Shorten deletes events that a later one in the outbox supersedes, the oldest first, if a limit is
// exceeded. The newest event about each agent and App stays, regardless of the limits. Shorten
// returns how many were deleted, and whether a limit was exceeded.
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

// outboxOver reports whether a limit is exceeded. It recognizes a short outbox, which is normal
// with a broker, by its first and last ID.
func (q outboxTable) outboxOver(ctx context.Context, limits OutboxLimits) (bool, error) {
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

// subjectOf returns what an event is the state of. A change of an agent describes the whole agent.
// Its registration, its end and a clone are separate subjects, which only another event of that
// type supersedes.
func subjectOf(e announce.Event) string {
	switch e.Type {
	case announce.AgentOnline, announce.AgentOffline, announce.AgentUpdated:
		return "agent"
	}
	if app, err := e.App(); err == nil {
		return "app/" + app.Namespace + "/" + app.Name
	}
	if route, err := e.Route(); err == nil {
		return "route/" + route.Host
	}
	if alert, err := e.Alert(); err == nil {
		return "alert/" + alert.Fingerprint
	}
	return string(e.Type)
}
