package controlplane

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// appEvent is an event of the App web/api.
func appEvent(id string, kind announce.Type) controlapi.Event {
	return controlapi.Event{ID: id, Type: string(kind), Time: time.Now(), App: &controlapi.AppEvent{Namespace: "web", Name: "api"}}
}

func (c *cluster) sends(leader *controlapi.Leadership, events ...controlapi.Event) error {
	return c.client.Events(c.t.Context(), controlapi.EventsRequest{Leader: leader, Events: events})
}

// TestEvents_QueuedOnce sends one agent's events again, as a reader of a log could. Another agent's
// events of the same ID are its own.
func TestEvents_QueuedOnce(t *testing.T) {
	p := start(t)
	c, other := p.registered("shop"), p.registered("other")
	failed := appEvent("2", announce.AppFailed)
	failed.App = &controlapi.AppEvent{
		Namespace: "web", Name: "api", Generation: 2, Replicas: 3, Ready: 1, Cause: "ImageNotFound", Message: "no such image", Fix: "push it",
	}
	at := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	alert := controlapi.Event{ID: "3", Type: string(announce.AlertFiring), Time: at.Add(time.Minute), Alert: &controlapi.AlertEvent{
		Fingerprint: "7df1dc9aa9e0c1b8", Name: "PipeOpsAppFailed", Severity: "critical", Namespace: "shop", App: "web",
		Summary: "shop/web\x1b does not serve", StartedAt: at,
	}}
	require.NoError(t, c.sends(nil, appEvent("1", announce.AppProgressing), failed))
	for range 2 {
		require.NoError(t, c.sends(nil, failed, alert))
	}
	require.NoError(t, other.sends(nil, failed))
	var events []announce.Event
	last := uint64(0)
	for _, e := range p.queued() {
		if e.AgentID == c.id.AgentID {
			events = append(events, e)
			assert.Equal(t, last, e.Previous)
			last = e.Sequence
		}
	}
	assert.Equal(t, []announce.Type{announce.AgentRegistered, announce.AppProgressing, announce.AppFailed, announce.AlertFiring}, typesOf(events))
	assert.Len(t, p.queued(), len(events)+2)
	app, err := events[2].App()
	require.NoError(t, err)
	assert.Equal(t, announce.AppEvent{
		Namespace: "web", Name: "api", Generation: 2, Replicas: 3, Ready: 1, Cause: "ImageNotFound", Message: "no such image", Fix: "push it",
	}, app)
	assert.Equal(t, at.Add(time.Minute), events[3].Time)
	told, err := events[3].Alert()
	require.NoError(t, err)
	assert.Equal(t, announce.AlertEvent{
		Fingerprint: "7df1dc9aa9e0c1b8", Name: "PipeOpsAppFailed", Severity: "critical", Namespace: "shop", App: "web",
		Summary: "shop/web  does not serve", StartedAt: at,
	}, told)
}

// TestEvents_RefuseTypeMismatch sends what the schema cannot exclude.
func TestEvents_RefuseTypeMismatch(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	app := appEvent("", "").App
	alert := &controlapi.AlertEvent{Fingerprint: "1", Name: "A", StartedAt: time.Now()}
	before := len(p.queued())
	for _, e := range []controlapi.Event{
		{Type: "app.failed"}, {Type: "app.failed", Alert: alert}, {Type: "app.failed", App: app, Alert: alert},
		{Type: "alert.firing"}, {Type: "alert.firing", App: app}, {Type: "alert.resolved", App: app, Alert: alert},
	} {
		e.ID, e.Time = "1", time.Now()
		requireProblem(t, c.sends(nil, e), problem.Invalid, "send an App with app.*, and an alert with alert.*")
	}
	assert.Len(t, p.queued(), before)
}

// TestEvents_RefuseFormerLeader: what a former leader was about to send arrives after the next one
// took over, or a call that the agent gave up arrives after later ones.
func TestEvents_RefuseFormerLeader(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	for i, call := range []struct {
		lease      string
		term, call int64
		kind       announce.Type // empty for a call without events
		refused    string
	}{
		{"first", 1, 1, announce.AppProgressing, ""},
		{"first", 1, 3, announce.AppHealthy, ""},
		{"first", 1, 2, announce.AppDegraded, "came after later ones"},
		{"first", 2, 1, announce.AppRemoved, ""}, // the next leader counts from 1
		{"first", 1, 4, announce.AppDegraded, "leads no more"},
		{"first", 2, 0, announce.AppDegraded, "call"},
		{"first", 2, 2, announce.AppProgressing, ""},
		{"first", 2, 2, "", ""},
		{"first", 3, 1, "", ""},
		{"first", 2, 3, announce.AppRemoved, "leads no more"},
		{"second", 0, 1, announce.AppHealthy, ""}, // the Lease was deleted and made again
	} {
		var events []controlapi.Event
		if call.kind != "" {
			events = append(events, appEvent(fmt.Sprint(i), call.kind))
		}
		err := c.sends(&controlapi.Leadership{Lease: call.lease, Term: call.term, Call: call.call}, events...)
		if call.refused == "" {
			require.NoError(t, err, "%+v", call)
			continue
		}
		code := problem.Conflict
		if call.call == 0 {
			code = problem.Invalid
		}
		requireProblem(t, err, code, call.refused)
	}
	assert.Equal(t, []announce.Type{
		announce.AgentRegistered, announce.AppProgressing, announce.AppHealthy, announce.AppRemoved, announce.AppProgressing, announce.AppHealthy,
	}, typesOf(p.queued()))
}

// TestEvents_ResentAfterRestore restores a backup that lacks the agent's last events.
func TestEvents_ResentAfterRestore(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	app := func(id, name string, kind announce.Type, generation int64) controlapi.Event {
		return controlapi.Event{ID: id, Type: string(kind), Time: time.Now(), App: &controlapi.AppEvent{Namespace: "web", Name: name, Generation: generation}}
	}
	last := controlapi.Leadership{Lease: "l", Term: 2, Call: 7}
	beat := c.heartbeat()
	for _, known := range []struct {
		controlapi.Leadership
		lost bool
	}{
		{controlapi.Leadership{Lease: "other", Term: 9, Call: 9}, true},
		{controlapi.Leadership{Lease: "l", Term: 1, Call: 9}, true},
		{controlapi.Leadership{Lease: "l", Term: 2, Call: 6}, true},
		{last, false},
		{controlapi.Leadership{Lease: "l", Term: 2, Call: 8}, false},
		{controlapi.Leadership{Lease: "l", Term: 3, Call: 1}, false},
	} {
		beat.LastEvents = nil
		answer, err := c.client.Heartbeat(t.Context(), beat)
		require.NoError(t, err)
		assert.False(t, answer.ResendApps, "none was accepted")
		require.NoError(t, c.sends(&known.Leadership))
		beat.LastEvents = &last
		answer, err = c.client.Heartbeat(t.Context(), beat)
		require.NoError(t, err)
		assert.Equal(t, known.lost, answer.ResendApps, "%+v", known)
	}
	next := &controlapi.Leadership{Lease: "l", Term: 3, Call: 5, After: 4}
	requireProblem(t, c.sends(next), problem.Conflict, "send the current states of all Apps")

	next.After = 0
	require.NoError(t, c.sends(next, app("1", "same", announce.AppHealthy, 1), app("2", "changed", announce.AppHealthy, 1),
		app("3", "ended", announce.AppHealthy, 1), app("4", "before", announce.AppHealthy, 1), app("5", "ended-before", announce.AppRemoved, 1)))
	before := len(p.queued())
	next.Call++
	for range 2 {
		require.NoError(t, c.client.Events(t.Context(), controlapi.EventsRequest{
			Leader: next, Current: &controlapi.AppRange{After: "web/before"},
			Events: []controlapi.Event{app("again", "same", announce.AppHealthy, 1), app("6", "changed", announce.AppFailed, 2), app("7", "fresh", announce.AppHealthy, 1)},
		}))
	}
	var got []string
	for _, e := range p.queued()[before:] {
		about, err := e.App()
		require.NoError(t, err)
		got = append(got, string(e.Type)+" "+about.Name)
	}
	assert.Equal(t, []string{"app.failed changed", "app.healthy fresh", "app.removed ended"}, got)
}
