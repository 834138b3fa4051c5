package controlplane

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

func (r *rush) on() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.over != nil
}

// waited is how long giveWay took.
func (r *rush) waited(ctx context.Context) time.Duration {
	start := time.Now()
	r.giveWay(ctx)
	return time.Since(start)
}

func TestWayIsGivenToARush(t *testing.T) {
	for name, c := range map[string]struct {
		during func(*rush, context.CancelFunc) // after one second
		waited time.Duration
	}{
		"until it is over":              {during: func(r *rush, _ context.CancelFunc) { r.note(rushFrom - 1) }, waited: time.Second},
		"over its next batch":           {during: func(r *rush, _ context.CancelFunc) { r.note(rushFrom) }, waited: rushPatience},
		"no longer than patience":       {during: func(*rush, context.CancelFunc) {}, waited: rushPatience},
		"no longer than what is waited": {during: func(_ *rush, cancel context.CancelFunc) { cancel() }, waited: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var r rush
				assert.Zero(t, r.waited(ctx), "there is none")
				r.note(rushFrom - 1)
				assert.Zero(t, r.waited(ctx), "so few are none")
				r.note(rushFrom)
				time.AfterFunc(time.Second, func() { c.during(&r, cancel) })
				assert.Equal(t, c.waited, r.waited(ctx))
			})
		})
	}
}

// held confirms what it is told to when it is told.
type held struct {
	came chan int
	let  chan error
}

func (h *held) PublishEncoded(ctx context.Context, events []announce.Encoded) (int, error) {
	select {
	case h.came <- len(events):
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	select {
	case err := <-h.let:
		if err != nil {
			return 0, err
		}
		return len(events), nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// TestARushIsAsLongAsManyGoOut follows it to each of its ends.
func TestARushIsAsLongAsManyGoOut(t *testing.T) {
	s, change := changing(t)
	h := &held{came: make(chan int), let: make(chan error)}
	announcer := &announcer{store: s, publisher: h, log: zerolog.Nop(), pause: time.Hour, now: time.Now}
	over := func(why string) {
		t.Helper()
		eventually(t, why, func() bool { return !announcer.rush.on() })
	}
	run := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- announcer.run(ctx) }()
		return func() { cancel(); require.NoError(t, <-done) }
	}
	rushes := func() {
		t.Helper()
		require.Equal(t, rushFrom, <-h.came)
		assert.True(t, announcer.rush.on(), "while they are on their way")
	}

	change(rushFrom)
	stop := run()
	rushes()
	h.let <- errors.New("connection lost")
	over("it is no rush while it waits for another try")
	stop()

	stop = run()
	rushes()
	h.let <- nil
	over("nothing is left")

	change(rushFrom)
	rushes()
	stop()
	assert.False(t, announcer.rush.on(), "nobody announces any more")
}

// TestTheTimelineGivesWayToARush for as long as it is let.
func TestTheTimelineGivesWayToARush(t *testing.T) {
	p := start(t)
	shop := p.labelled("shop", nil).id.AgentID
	m := &messaging{store: p.store, webhooks: p.webhooks, announcer: &announcer{}}
	event, err := announce.NewAppEvent(announce.AppHealthy, eventSource, shop, announce.AppEvent{Namespace: "production", Name: "web"}, 1000, p.clock.now())
	require.NoError(t, err)
	remembered := func() int {
		events, err := p.store.Timeline(t.Context(), shop, 10)
		require.NoError(t, err)
		return len(events)
	}

	m.announcer.rush.note(rushFrom)
	brief, cancel := context.WithTimeout(t.Context(), rushPatience/4)
	defer cancel()
	require.ErrorIs(t, m.rememberAll(brief, []announce.Event{event}), context.DeadlineExceeded)
	assert.Zero(t, remembered(), "it waited until it was too late")

	m.announcer.rush.note(0)
	require.NoError(t, m.rememberAll(t.Context(), []announce.Event{event}))
	assert.Equal(t, 1, remembered())
}
