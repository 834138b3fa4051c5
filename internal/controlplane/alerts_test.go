package controlplane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

func TestEvents_AlertsQueuedOnce(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	at := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	alert := func(id, kind string) controlapi.Event {
		return controlapi.Event{ID: id, Type: kind, Time: at.Add(time.Minute), Alert: &controlapi.AlertEvent{
			Fingerprint: "7df1dc9aa9e0c1b8", Name: "PipeOpsAppFailed", Severity: "critical", Namespace: "shop", App: "web",
			Summary: "shop/web\x1b does not serve", StartedAt: at,
		}}
	}
	before := len(p.queued())
	for range 2 {
		events := []controlapi.Event{alert("1", "alert.firing"), alert("2", "alert.resolved")}
		require.NoError(t, c.client.Events(t.Context(), controlapi.EventsRequest{Events: events}))
	}
	events := p.queued()[before:]
	require.Len(t, events, 2)
	assert.Equal(t, announce.AlertFiring, events[0].Type)
	assert.Equal(t, announce.AlertResolved, events[1].Type)
	assert.Equal(t, at.Add(time.Minute), events[1].Time)
	told, err := events[0].Alert()
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
	app := &controlapi.AppEvent{Namespace: "n", Name: "web"}
	alert := &controlapi.AlertEvent{Fingerprint: "1", Name: "A", StartedAt: time.Now()}
	before := len(p.queued())
	for _, e := range []controlapi.Event{
		{Type: "app.failed"}, {Type: "app.failed", Alert: alert}, {Type: "app.failed", App: app, Alert: alert},
		{Type: "alert.firing"}, {Type: "alert.firing", App: app}, {Type: "alert.resolved", App: app, Alert: alert},
	} {
		e.ID, e.Time = "1", time.Now()
		err := c.client.Events(t.Context(), controlapi.EventsRequest{Events: []controlapi.Event{e}})
		requireProblem(t, err, problem.Invalid, "send an App with app.*, and an alert with alert.*")
	}
	assert.Len(t, p.queued(), before)
}
