package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/outbox"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// TestOutbox_BoundedPerApp: an App changes its state for long while nothing is published. Whoever
// reads what is left knows the App's state.
func TestOutbox_BoundedPerApp(t *testing.T) {
	var log bytes.Buffer
	p := start(t, func(c *Config) { c.Limits.Outbox = store.OutboxLimits{PerAgent: 20} })
	shop := p.registered("shop")
	o := outbox.New(p.store, p.cfg.Limits.Outbox, zerolog.New(&log))
	for i := range 8 {
		var events []controlapi.Event
		for _, kind := range []announce.Type{announce.AppProgressing, announce.AppDegraded, announce.AppFailed, announce.AppHealthy} {
			events = append(events, appEvent(strconv.Itoa(i)+string(kind), kind))
		}
		require.NoError(t, shop.sends(nil, events...))
		require.NoError(t, o.Shorten(t.Context()))
		assert.LessOrEqual(t, len(p.queued()), 20)
	}
	left := p.queued()
	assert.Equal(t, announce.AgentRegistered, left[0].Type)
	last := left[len(left)-1]
	assert.Equal(t, announce.AppHealthy, last.Type)
	assert.EqualValues(t, 33, last.Sequence, "a Runner sees by its sequence that some were dropped")
	assert.Contains(t, log.String(), "later ones supersede")
	stats, err := o.Stats(t.Context())
	require.NoError(t, err)
	assert.EqualValues(t, 33-len(left), stats.Dropped)
	assert.Equal(t, len(left), stats.Length)
}

func TestReadyz_Outbox(t *testing.T) {
	p := start(t)
	p.registered("shop")
	p.clock.forward(3 * time.Minute)
	p.outbox.Dropped.Store(7)
	p.get(p.client(), "/readyz", func(resp *http.Response) {
		var r readiness
		require.NoError(t, json.NewDecoder(resp.Body).Decode(&r))
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Regexp(t, `^1 announcements wait, the first for 3m\d+s; 7 were dropped since the start, which later ones supersede$`, r.Checks["outbox"])
	})
}

func TestOutbox_LastEventsLoggedOnce(t *testing.T) {
	var log bytes.Buffer
	p := start(t)
	for _, name := range []string{"a", "b", "c"} {
		p.registered(name)
	}
	o := outbox.New(p.store, store.OutboxLimits{PerAgent: 2, Events: 2, Bytes: 1 << 20}, zerolog.New(&log))
	for range 3 {
		require.NoError(t, o.Shorten(context.Background()))
	}
	assert.Len(t, p.queued(), 3, "nothing else says it")
	assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("last word about each")))
}
