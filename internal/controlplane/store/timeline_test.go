package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// remember puts events of an App, or of the agent itself if it has no name, into
// a1's timeline, all at once.
func remember(t *testing.T, s *store.Store, kind announce.Type, app string, from, to uint64) {
	t.Helper()
	require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error {
		for n := from; n <= to; n++ {
			at := noon.Add(time.Duration(n) * time.Second)
			e, err := announce.NewAgentEvent(kind, "/controlplane", announce.Agent{ID: "a1", Name: "shop", State: announce.StateOnline}, n, at)
			if kind.IsApp() {
				e, err = announce.NewAppEvent(kind, "/controlplane", "a1", announce.AppEvent{Namespace: "n", Name: app}, n, at)
			}
			if err != nil {
				return err
			}
			if err := tx.AddToTimeline(t.Context(), e); err != nil {
				return err
			}
		}
		return nil
	}))
}

func page(t *testing.T, s *store.Store, q store.TimelineQuery) (sequences []uint64, more bool) {
	t.Helper()
	q.AgentID = "a1"
	if q.Limit == 0 {
		q.Limit = 10_000
	}
	events, more, err := s.TimelinePage(t.Context(), q)
	require.NoError(t, err)
	for _, e := range events {
		sequences = append(sequences, e.Sequence)
	}
	return sequences, more
}

func TestTimeline_Pages(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		require.NoError(t, s.InsertAgent(t.Context(), agent("a1", "shop")))
		remember(t, s, announce.AgentOnline, "", 1, 2)
		remember(t, s, announce.AppHealthy, "web", 3, 5)
		remember(t, s, announce.AppFailed, "db", 6, 7)
		for name, c := range map[string]struct {
			q    store.TimelineQuery
			want []uint64
			more bool
		}{
			"all, newest first": {store.TimelineQuery{}, []uint64{7, 6, 5, 4, 3, 2, 1}, false},
			"oldest first":      {store.TimelineQuery{OldestFirst: true, Limit: 2}, []uint64{1, 2}, true},
			"the next page":     {store.TimelineQuery{OldestFirst: true, Limit: 5, After: 2}, []uint64{3, 4, 5, 6, 7}, false},
			"before":            {store.TimelineQuery{Before: 3}, []uint64{2, 1}, false},
			"an App":            {store.TimelineQuery{Namespace: "n", App: "web"}, []uint64{5, 4, 3}, false},
			"a namespace":       {store.TimelineQuery{Namespace: "n", Limit: 4}, []uint64{7, 6, 5, 4}, true},
			"another namespace": {store.TimelineQuery{Namespace: "m", App: "web"}, nil, false},
			"types":             {store.TimelineQuery{Types: []announce.Type{announce.AgentOnline, announce.AppFailed}}, []uint64{7, 6, 2, 1}, false},
			"since":             {store.TimelineQuery{Since: noon.Add(6 * time.Second)}, []uint64{7, 6}, false},
			"bytes":             {store.TimelineQuery{Bytes: 1}, []uint64{7}, true},
		} {
			got, more := page(t, s, c.q)
			assert.Equal(t, c.want, got, name)
			assert.Equal(t, c.more, more, name)
		}
	})
}

func TestTimeline_LimitPerApp(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		require.NoError(t, s.InsertAgent(t.Context(), agent("a1", "shop")))
		remember(t, s, announce.AgentOnline, "", 1, 1)
		remember(t, s, announce.AppHealthy, "quiet", 2, 3)
		n := uint64(3)
		for i := range 8 {
			remember(t, s, announce.AppFailed, fmt.Sprintf("loud-%d", i), n+1, n+300)
			n += 300
		}
		remember(t, s, announce.AgentUpdated, "", n+1, n+100)
		n += 100
		got, _ := page(t, s, store.TimelineQuery{})
		assert.InDelta(t, store.TimelineLength+10, len(got), 110, "bounded for the agent")
		loud, _ := page(t, s, store.TimelineQuery{Namespace: "n", App: "loud-7"})
		assert.Len(t, loud, store.AppTimelineLength, "and for an App")
		assert.Equal(t, n-100, loud[0], "of which the newest are kept")
		quiet, _ := page(t, s, store.TimelineQuery{Namespace: "n", App: "quiet"})
		assert.Equal(t, []uint64{3}, quiet, "the last of an App that is quiet")
		first, _ := page(t, s, store.TimelineQuery{Namespace: "n", App: "loud-0"})
		assert.Contains(t, first, uint64(303))
	})
}

func TestTimeline_Alerts(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
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
	})
}

func TestFindApps(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		require.NoError(t, s.InsertAgent(t.Context(), agent("a1", "shop")))
		remember(t, s, announce.AppProgressing, "web", 1, 1)
		remember(t, s, announce.AppHealthy, "web", 2, 2)
		remember(t, s, announce.AppFailed, "Web-2", 3, 3)
		remember(t, s, announce.AppHealthy, "web-gone", 4, 4)
		remember(t, s, announce.AppRemoved, "web-gone", 5, 5)
		remember(t, s, announce.AppHealthy, "db", 6, 6)
		for search, want := range map[string][]store.FoundApp{
			"WEB":   {{"a1", "shop", "n", "Web-2", "failed"}, {"a1", "shop", "n", "web", "healthy"}},
			"n web": {{"a1", "shop", "n", "Web-2", "failed"}, {"a1", "shop", "n", "web", "healthy"}},
			"w%":    {}, "other": {},
		} {
			got, err := s.FindApps(t.Context(), search, 10)
			require.NoError(t, err)
			assert.ElementsMatch(t, want, got, search)
		}
		got, err := s.FindApps(t.Context(), "", 1)
		require.NoError(t, err)
		assert.Len(t, got, 1)
	})
}
