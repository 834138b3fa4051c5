package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

const (
	// TimelineLength is how many of an agent's events are kept, not counting the last
	// of each App, and how many Apps' last ones are.
	TimelineLength = 1000
	// AppTimelineLength is how many of one App's are.
	AppTimelineLength = 200
	// timelineSlack is how many more there may be: an agent's old ones are dropped with
	// each so many-th event, since it takes looking at all of them.
	timelineSlack = 100
)

// TimelineQuery selects from an agent's timeline. Zero values set no bounds.
type TimelineQuery struct {
	AgentID        string
	Namespace, App string
	Types          []announce.Type
	// Since is the time of the events themselves, to the microsecond.
	Since time.Time
	// Before and After are sequences, of which the event itself is not meant.
	Before, After uint64
	OldestFirst   bool
	// Limit is how many, and Bytes how much of encoded events; one comes in any case.
	Limit, Bytes int
}

// AddToTimeline stores an event, once, and deletes old events of the same App and of the agent, but
// never an App's last one. It drops events of deleted agents.
func (t *Tx) AddToTimeline(ctx context.Context, e announce.Event) error {
	body, err := e.Encode()
	if err != nil {
		return err
	}
	about, err := appOf(e)
	if err != nil {
		return err
	}
	n, err := t.exec(ctx, `INSERT INTO timeline (event_id, agent_id, sequence, body, namespace, app, type, at)
		SELECT $1, id, $2, $3, $4, $5, $6, $7 FROM agents WHERE id = $8 ON CONFLICT (event_id) DO NOTHING`,
		e.ID, e.Sequence, string(body), about.Namespace, about.Name, e.Type, micros(e.Time), e.AgentID)
	if err != nil || n == 0 {
		return err
	}
	if about.Name != "" {
		if err := t.trimApp(ctx, e.AgentID, about); err != nil {
			return err
		}
	}
	if e.Sequence%timelineSlack != 0 {
		return nil
	}
	return t.trimAgent(ctx, e.AgentID)
}

// Hides reports whether an event is for Runners that may no longer see its agent, although the
// agent exists.
func Hides(e announce.Event) bool {
	if e.Type != announce.AgentRemoved {
		return false
	}
	agent, err := e.Agent()
	return err == nil && IsHiding(e.Type, agent)
}

// IsHiding is Hides for an event whose agent is decoded.
func IsHiding(t announce.Type, agent announce.Agent) bool {
	return t == announce.AgentRemoved && agent.State != announce.StateRevoked
}

// appOf returns namespace and name of the App with whose events this one is kept, if there is one.
func appOf(e announce.Event) (about announce.AppEvent, err error) {
	switch {
	case e.Type.IsApp():
		return e.App()
	case e.Type.IsRoute():
		route, err := e.Route()
		if err != nil || route.App == "" {
			return about, err
		}
		return announce.AppEvent{Namespace: route.Namespace, Name: route.App}, nil
	case e.Type.IsAlert():
		alert, err := e.Alert()
		if err != nil || alert.App == "" {
			return about, err
		}
		return announce.AppEvent{Namespace: alert.Namespace, Name: alert.App}, nil
	}
	return about, nil
}

// trimApp drops an App's oldest events.
func (t *Tx) trimApp(ctx context.Context, agentID string, about announce.AppEvent) error {
	_, err := t.exec(ctx, `DELETE FROM timeline WHERE agent_id = $1 AND namespace = $2 AND app = $3 AND sequence <=
		(SELECT sequence FROM timeline WHERE agent_id = $1 AND namespace = $2 AND app = $3 ORDER BY sequence DESC LIMIT 1 OFFSET $4)`,
		agentID, about.Namespace, about.Name, AppTimelineLength)
	return err
}

// trimAgent drops an agent's oldest events: of those after which the same App had
// others, and of Apps' last ones, each by themselves.
func (t *Tx) trimAgent(ctx context.Context, agentID string) error {
	for _, which := range []string{"EXISTS", "NOT EXISTS"} {
		_, err := t.exec(ctx, `DELETE FROM timeline WHERE event_id IN (SELECT event_id FROM timeline AS old WHERE agent_id = $1 AND `+which+` (
			SELECT 1 FROM timeline AS newer WHERE newer.agent_id = old.agent_id AND newer.namespace = old.namespace
				AND newer.app = old.app AND newer.sequence > old.sequence)
			ORDER BY sequence DESC LIMIT 1000000 OFFSET $2)`, agentID, TimelineLength)
		if err != nil {
			return err
		}
	}
	return nil
}

// timelineTable has the statements about timelines.
type timelineTable struct{ table }

// Timeline lists an agent's last events, oldest first.
func (q timelineTable) Timeline(ctx context.Context, agentID string, limit int) ([]announce.Event, error) {
	return all(ctx, q.q, scanEvent, `SELECT body FROM (SELECT body, sequence FROM timeline WHERE agent_id = $1 ORDER BY sequence DESC LIMIT $2) AS last ORDER BY sequence`,
		agentID, limit)
}

// LastOfApps returns the last app.* event of each of an agent's Apps.
func (q timelineTable) LastOfApps(ctx context.Context, agentID string) ([]announce.Event, error) {
	return all(ctx, q.q, scanEvent, `SELECT body FROM timeline AS last WHERE agent_id = $1 AND type LIKE 'app.%' AND NOT EXISTS (
		SELECT 1 FROM timeline AS newer WHERE newer.agent_id = last.agent_id AND newer.namespace = last.namespace AND newer.app = last.app
			AND newer.type LIKE 'app.%' AND newer.sequence > last.sequence) ORDER BY namespace, app`, agentID)
}

// TimelinePage returns the requested events, and reports whether there are more.
func (q timelineTable) TimelinePage(ctx context.Context, want TimelineQuery) (events []announce.Event, more bool, err error) {
	query, args := want.sql()
	rows, err := q.q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, false, fmt.Errorf("database: %w", err)
	}
	defer func() { _ = rows.Close() }()
	for size := 0; rows.Next(); {
		var body string
		if err := rows.Scan(&body); err != nil {
			return nil, false, fmt.Errorf("database: %w", err)
		}
		if size += len(body); len(events) == want.Limit || len(events) > 0 && want.Bytes > 0 && size > want.Bytes {
			return events, true, nil
		}
		e, err := announce.Decode([]byte(body))
		if err != nil {
			return nil, false, fmt.Errorf("database: timeline: %w", err)
		}
		events = append(events, e)
	}
	if err := rows.Err(); err != nil {
		return nil, false, fmt.Errorf("database: %w", err)
	}
	return events, false, nil
}

// sql requests one event more than wanted, which shows whether there are more.
func (w *TimelineQuery) sql() (query string, args []any) {
	var b strings.Builder
	arg := func(v any) string {
		args = append(args, v)
		return fmt.Sprintf("$%d", len(args))
	}
	b.WriteString(`SELECT body FROM timeline WHERE agent_id = ` + arg(w.AgentID))
	if w.Namespace != "" {
		b.WriteString(` AND namespace = ` + arg(w.Namespace))
	}
	if w.App != "" {
		b.WriteString(` AND app = ` + arg(w.App))
	}
	if len(w.Types) > 0 {
		list := make([]string, len(w.Types))
		for i, t := range w.Types {
			list[i] = arg(t)
		}
		b.WriteString(` AND type IN (` + strings.Join(list, ", ") + `)`)
	}
	if !w.Since.IsZero() {
		b.WriteString(` AND at >= ` + arg(micros(w.Since)))
	}
	if w.Before > 0 {
		b.WriteString(` AND sequence < ` + arg(w.Before))
	}
	if w.After > 0 {
		b.WriteString(` AND sequence > ` + arg(w.After))
	}
	b.WriteString(` ORDER BY sequence`)
	if !w.OldestFirst {
		b.WriteString(` DESC`)
	}
	b.WriteString(` LIMIT ` + arg(w.Limit+1))
	return b.String(), args
}

func scanEvent(row scanner, e *announce.Event) error {
	var body string
	if err := row.Scan(&body); err != nil {
		return err
	}
	var err error
	*e, err = announce.Decode([]byte(body))
	return err
}
