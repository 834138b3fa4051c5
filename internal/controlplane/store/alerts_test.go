package store_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
)

func TestTimeline_Alerts(t *testing.T) {
	postgres.OnEach(t, testAlertsAreInTheTimeline)
}

func testAlertsAreInTheTimeline(t *testing.T, on postgres.Engine) {
	t.Parallel()
	s := fresh(t, on)
	require.NoError(t, s.InsertAgent(t.Context(), agent("a1", "shop")))
	remember(t, s, announce.AppFailed, "web", 1, 1)
	require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error {
		for i, a := range []announce.AlertEvent{{Fingerprint: "1", Name: "A", Namespace: "n", App: "web"}, {Fingerprint: "2", Name: "B"}} {
			e, err := announce.NewAlertEvent(announce.AlertFiring, "/controlplane", "a1", a, uint64(i)+2, noon)
			if err != nil {
				return err
			}
			if err := tx.AddToTimeline(t.Context(), e); err != nil {
				return err
			}
		}
		return nil
	}))
	of := func(q store.TimelineQuery) []uint64 {
		sequences, more := page(t, s, q)
		assert.False(t, more)
		return sequences
	}
	assert.Equal(t, []uint64{2, 1}, of(store.TimelineQuery{Namespace: "n", App: "web"}))
	assert.Equal(t, []uint64{3, 2, 1}, of(store.TimelineQuery{}))
	assert.Equal(t, []uint64{3, 2}, of(store.TimelineQuery{Types: []announce.Type{announce.AlertFiring}}))
}
