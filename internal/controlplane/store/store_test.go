package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 123000, time.UTC)

func agent(id, name string) store.Agent {
	used := int64(7)
	return store.Agent{ID: id, Name: name, ClusterUID: "uid-" + id, Labels: map[string]string{"zone": "a"}, State: announce.StatePending,
		Key: "k1", Capacity: announce.Capacity{Nodes: 3, UsedCPUMillis: &used}, EdgeAddress: "edge:1", RegisteredAt: noon, LastSeen: noon}
}

func enqueue(t *testing.T, s *store.Store, a store.Agent, kind announce.Type) announce.Event {
	t.Helper()
	var e announce.Event
	require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error {
		at, err := tx.NextPosition(t.Context(), a.ID, time.Time{})
		if err != nil {
			return err
		}
		n := at.Sequence
		if kind.IsApp() {
			e, err = announce.NewAppEvent(kind, "/controlplane", a.ID, announce.AppEvent{Namespace: "n", Name: "web"}, n, noon)
		} else {
			e, err = announce.NewAgentEvent(kind, "/controlplane", announce.Agent{ID: a.ID, Name: a.Name, State: a.State}, n, noon)
		}
		if err != nil {
			return err
		}
		return tx.Enqueue(t.Context(), e)
	}))
	return e
}

func TestSQLite_FileMode(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "x.db")
	s, err := store.Open(t.Context(), file)
	closing(t, s, err)
	require.NoError(t, s.PutSetting(t.Context(), "a", "b"))
	for _, name := range []string{file, file + "-wal", file + "-shm"} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
	}
}

func TestTokens(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		want := store.Token{ID: "t1", Name: "first", Labels: map[string]string{"a": "b"}, Hash: "h", MaxUses: 2, CreatedAt: noon, ExpiresAt: noon.Add(time.Hour)}
		require.NoError(t, s.CreateToken(ctx, want))
		require.NoError(t, s.UseToken(ctx, "t1", "agent", noon, true))
		require.NoError(t, s.UseToken(ctx, "t1", "agent", noon, false))
		require.NoError(t, s.RevokeToken(ctx, "t1", noon))
		require.NoError(t, s.RevokeToken(ctx, "t1", noon.Add(time.Hour)))
		got, err := s.Token(ctx, "t1")
		require.NoError(t, err)
		want.Uses, want.LastUsedAt, want.LastUsedBy, want.RevokedAt = 1, noon, "agent", noon
		assert.Equal(t, want, got)
		list, err := s.Tokens(ctx)
		require.NoError(t, err)
		assert.Equal(t, []store.Token{want}, list)

		_, err = s.Token(ctx, "none")
		require.ErrorIs(t, err, store.ErrNotFound)
		require.ErrorIs(t, s.RevokeToken(ctx, "none", noon), store.ErrNotFound)
	})
}

func TestAgents(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		a := agent("a1", "shop")
		require.NoError(t, s.InsertAgent(ctx, a))
		require.Error(t, s.InsertAgent(ctx, agent("a2", "shop")), "a name is taken once")

		a.State, a.RevokedAt, a.Sequence = announce.StateRevoked, noon, 99
		require.NoError(t, s.UpdateAgent(ctx, a))
		a.Sequence = 0 // is not written by UpdateAgent
		got, err := s.AgentOfCluster(ctx, "uid-a1")
		require.NoError(t, err)
		assert.Equal(t, a, got)
		assert.True(t, got.Revoked())

		require.NoError(t, s.InsertAgent(ctx, agent("a2", "shop")), "a revoked agent's name is free")
		got, err = s.AgentNamed(ctx, "shop")
		require.NoError(t, err)
		assert.Equal(t, "a2", got.ID)

		require.NoError(t, s.SaveBeats(ctx, []store.Beat{{AgentID: "a2", At: noon.Add(time.Minute), Capacity: &announce.Capacity{Nodes: 4}}, {AgentID: "gone", At: noon}}))
		require.NoError(t, s.SaveBeats(ctx, []store.Beat{{AgentID: "a2", At: noon.Add(time.Second), Capacity: &announce.Capacity{Nodes: 5}}}), "an older beat is ignored")
		got, err = s.Agent(ctx, "a2")
		require.NoError(t, err)
		assert.Equal(t, 4, got.Capacity.Nodes)
		assert.Equal(t, noon.Add(time.Minute), got.LastSeen)

		require.NoError(t, s.DeleteAgent(ctx, "a2"))
		require.ErrorIs(t, s.DeleteAgent(ctx, "a2"), store.ErrNotFound)
		list, err := s.Agents(ctx)
		require.NoError(t, err)
		assert.Len(t, list, 1)
	})
}

func TestUpdate_Atomic(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		stop := errors.New("stop")
		err := s.Update(ctx, func(tx *store.Tx) error {
			require.NoError(t, tx.InsertAgent(ctx, agent("a1", "shop")))
			return stop
		})
		require.ErrorIs(t, err, stop)
		_, err = s.Agent(ctx, "a1")
		require.ErrorIs(t, err, store.ErrNotFound)
		select {
		case <-s.Queued():
			t.Fatal("nothing was queued")
		default:
		}
	})
}

// A restored database forgets the last events of an agent. Its next ones have higher sequences all
// the same, and the event before tells that some are gone.
func TestNextPosition_AfterRestore(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		require.NoError(t, s.InsertAgent(t.Context(), agent("a1", "shop")))
		next := func(s *store.Store, now time.Time) (p store.Position) {
			require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) (err error) {
				p, err = tx.NextPosition(t.Context(), "a1", now)
				return err
			}))
			return p
		}
		first, second := next(s, noon), next(s, noon)
		assert.Equal(t, []uint64{0, first.Sequence, first.Sequence + 1}, []uint64{first.Previous, second.Previous, second.Sequence})
		assert.Len(t, first.Installation, 36)
		lost := next(s.DryRun(), noon.Add(time.Hour))
		after := next(s, noon.Add(2*time.Hour))
		assert.Greater(t, after.Sequence, lost.Sequence)
		assert.Equal(t, second.Sequence, after.Previous)
	})
}

func TestTimeline_Idempotent(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		require.NoError(t, s.InsertAgent(ctx, agent("a1", "shop")))
		add := func(e announce.Event) {
			require.NoError(t, s.Update(ctx, func(tx *store.Tx) error { return tx.AddToTimeline(ctx, e) }))
		}
		event := func(id string, sequence uint64) announce.Event {
			e, err := announce.NewAppEvent(announce.AppHealthy, "/controlplane", id, announce.AppEvent{Namespace: "n", Name: "a"}, sequence, noon)
			require.NoError(t, err)
			return e
		}
		for i := uint64(1); i <= 3; i++ {
			e := event("a1", i)
			add(e)
			add(e)
		}
		add(event("gone", 1))
		list, err := s.Timeline(ctx, "a1", 2)
		require.NoError(t, err)
		require.Len(t, list, 2)
		assert.Equal(t, []uint64{2, 3}, []uint64{list[0].Sequence, list[1].Sequence})
	})
}

func TestReceived_Deduplicates(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		require.NoError(t, s.InsertAgent(ctx, agent("a1", "shop")))
		for i, want := range []bool{true, false} {
			fresh, err := s.Received(ctx, "a1", "e", noon)
			require.NoError(t, err)
			assert.Equal(t, want, fresh, i)
		}
		require.NoError(t, s.ForgetReceived(ctx, noon.Add(time.Second)))
		again, err := s.Received(ctx, "a1", "e", noon)
		require.NoError(t, err)
		assert.True(t, again)
	})
}

func TestRunners(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		first := store.Runner{Name: "r", Serial: "01", CreatedAt: noon, ExpiresAt: noon.Add(time.Hour), TTL: time.Hour}
		require.NoError(t, s.PutRunner(ctx, first))
		require.NoError(t, s.RevokeCertificate(ctx, first, noon))
		require.NoError(t, s.RevokeCertificate(ctx, first, noon.Add(time.Minute)), "again")
		got, err := s.Runner(ctx, "r")
		require.NoError(t, err)
		assert.Equal(t, noon, got.RevokedAt)

		names, err := s.RevokedRunners(ctx)
		require.NoError(t, err)
		assert.Equal(t, []string{"r"}, names)

		second := first
		second.Serial = "02"
		require.NoError(t, s.PutRunner(ctx, second))
		names, err = s.RevokedRunners(ctx)
		require.NoError(t, err)
		assert.Empty(t, names, "a Runner with another certificate is not revoked")
		list, err := s.Runners(ctx)
		require.NoError(t, err)
		assert.Equal(t, []store.Runner{second}, list)
		serials, err := s.RevokedSerials(ctx, noon)
		require.NoError(t, err)
		assert.Equal(t, []string{"01"}, serials)
		serials, err = s.RevokedSerials(ctx, noon.Add(2*time.Hour))
		require.NoError(t, err)
		assert.Empty(t, serials, "expired certificates need no revoking")
	})
}

func TestWatch_OtherProcess(t *testing.T) {
	onEachPlace(t, func(t *testing.T, open func() *store.Store) {
		serve, cli := open(), open()
		changed := make(chan struct{}, 10_000)
		await.Background(t, "Watch", func(ctx context.Context) error {
			return serve.Watch(ctx, time.Millisecond, func() { changed <- struct{}{} })
		})
		changes := 0
		await.Until(t, "the change is seen", func() bool { // the first ones may come before the watch began
			changes++
			require.NoError(t, cli.PutSetting(t.Context(), "k", fmt.Sprint(changes)))
			return len(changed) > 0
		})
		await.Receive(t, serve.Queued(), "word of the change")
		settings, err := serve.Settings(t.Context())
		require.NoError(t, err)
		assert.Contains(t, settings, "k")
		require.NoError(t, serve.Ping(t.Context()))
	})
}

// TestUpdate_Serializes has two processes read and then write the same value.
func TestUpdate_Serializes(t *testing.T) {
	onEachPlace(t, func(t *testing.T, open func() *store.Store) {
		ctx := t.Context()
		processes := []*store.Store{open(), open()}
		require.NoError(t, processes[0].PutSetting(ctx, "count", "0"))
		const writers, times = 8, 10
		done := make(chan error, writers)
		for i := range writers {
			go func() {
				var err error
				for range times {
					err = errors.Join(err, processes[i%2].Update(ctx, func(tx *store.Tx) error { return increment(ctx, tx) }))
				}
				done <- err
			}()
		}
		for range writers {
			require.NoError(t, await.Receive(t, done, "the end of a writer"))
		}
		settings, err := processes[1].Settings(ctx)
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprint(writers*times), settings["count"])
	})
}

func increment(ctx context.Context, tx *store.Tx) error {
	settings, err := tx.Settings(ctx)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(settings["count"])
	if err != nil {
		return err
	}
	return tx.PutSetting(ctx, "count", fmt.Sprint(n+1))
}

// TestOutbox_NoLateGaps checks that no event appears below an ID that was announced already.
func TestOutbox_NoLateGaps(t *testing.T) {
	onEachPlace(t, func(t *testing.T, open func() *store.Store) {
		ctx := t.Context()
		processes := []*store.Store{open(), open()}
		const writers, times = 6, 10
		for i := range writers {
			require.NoError(t, processes[0].InsertAgent(ctx, agent(fmt.Sprint("a", i), fmt.Sprint("shop", i))))
		}
		var group sync.WaitGroup
		for i := range writers {
			group.Go(func() {
				for range times {
					enqueue(t, processes[i%2], agent(fmt.Sprint("a", i), "shop"), announce.AgentUpdated)
				}
			})
		}
		sequences := map[string]uint64{}
		for seen := 0; seen < writers*times; {
			queued, err := processes[0].Outbox(ctx, 7)
			require.NoError(t, err)
			for _, q := range queued {
				sequences[q.Event.AgentID]++
				require.Equal(t, sequences[q.Event.AgentID], q.Event.Sequence, "none is missing and none is early")
			}
			if seen += len(queued); len(queued) > 0 {
				require.NoError(t, processes[0].Announced(ctx, queued[len(queued)-1].ID))
			}
		}
		group.Wait()
	})
}

func TestUpdate_RollsBackOnPanic(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		assert.Panics(t, func() {
			_ = s.Update(ctx, func(tx *store.Tx) error {
				require.NoError(t, tx.PutSetting(ctx, "a", "b"))
				panic("a mistake")
			})
		})
		require.NoError(t, s.PutSetting(ctx, "c", "d"), "the next writer gets its turn")
		settings, err := s.Settings(ctx)
		require.NoError(t, err)
		assert.Equal(t, "d", settings["c"])
		assert.NotContains(t, settings, "a")
	})
}

func TestSQLite_WritersDoNotBlockReaders(t *testing.T) {
	t.Parallel()
	s, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	began, end := make(chan struct{}), make(chan struct{})
	var writers sync.WaitGroup
	defer writers.Wait()
	defer close(end)
	writers.Go(func() {
		assert.NoError(t, s.Update(t.Context(), func(*store.Tx) error { close(began); <-end; return nil }))
	})
	await.Closed(t, began, "the first writer")
	for range 100 { // many more than there are connections
		writers.Go(func() { assert.NoError(t, s.Update(t.Context(), func(*store.Tx) error { return nil })) })
	}
	reading, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for range 200 { // while they all come to wait
		require.NoError(t, s.Ping(reading))
	}
	waiting, stop := context.WithCancel(t.Context())
	stop()
	assert.ErrorIs(t, s.Update(waiting, func(*store.Tx) error { return nil }), context.Canceled, "who has no time is told so")
}

// TestFindAgents matches labels exactly, and words in any case.
func TestFindAgents(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		for id, labels := range map[string]map[string]string{
			"a1": {"env": "prod", "team": "a_b"}, "a2": {"env": "Prod", "team": "axb"}, "a3": {"Env": "prod"}, "a4": nil,
		} {
			a := agent(id, "shop-"+id)
			a.Labels = labels
			require.NoError(t, s.InsertAgent(ctx, a))
		}
		gone := agent("a4", "shop-a4")
		gone.RevokedAt = noon
		require.NoError(t, s.UpdateAgent(ctx, gone))

		by := func(selector string) store.AgentQuery {
			grant, err := credentials.ParseGrant(selector)
			require.NoError(t, err)
			return store.AgentQuery{Selector: grant}
		}
		for name, tc := range map[string]struct {
			find store.AgentQuery
			want []string
		}{
			"a label":     {by("env=prod"), []string{"a1"}},
			"another":     {by("env=Prod"), []string{"a2"}},
			"two labels":  {by("env=prod,team=a_b"), []string{"a1"}},
			"no pattern":  {by("team=a.b"), nil},
			"not":         {by("env!=prod"), []string{"a2", "a3", "a4"}},
			"in":          {by("env in (prod,Prod)"), []string{"a1", "a2"}},
			"notin":       {by("env notin (prod,Prod)"), []string{"a3", "a4"}},
			"there":       {by("env"), []string{"a1", "a2"}},
			"not there":   {by("!env"), []string{"a3", "a4"}},
			"both":        {by("env,env!=prod"), []string{"a2"}},
			"a word":      {store.AgentQuery{Search: "PROD"}, []string{"a1", "a2", "a3"}},
			"a wildcard":  {store.AgentQuery{Search: "a_b"}, []string{"a1"}},
			"a state":     {store.AgentQuery{State: announce.StateRevoked}, []string{"a4"}},
			"all of them": {store.AgentQuery{Selector: by("env=prod").Selector, Search: "shop-a1", State: announce.StatePending}, []string{"a1"}},
		} {
			found, total, err := s.FindAgents(ctx, tc.find)
			require.NoError(t, err, name)
			var ids []string
			for _, a := range found {
				ids = append(ids, a.ID)
			}
			assert.Equal(t, tc.want, ids, name)
			assert.Equal(t, len(tc.want), total, name)
			for _, id := range []string{"a1", "a2", "a3", "a4"} { // as a grant selects
				a, err := s.Agent(ctx, id)
				require.NoError(t, err)
				if tc.find.Search == "" && tc.find.State == "" {
					assert.Equal(t, tc.find.Selector.Allows(a.Labels), slices.Contains(ids, id), "%s: %s", name, id)
				}
			}
		}
	})
}

// TestFindAgentStates has the worst trouble of each agent, in the order of urgency.
func TestFindAgentStates(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.Store) {
		ctx := t.Context()
		for id, change := range map[string]func(*store.Agent){
			"a1": func(a *store.Agent) { a.State, a.Labels = announce.StateOnline, map[string]string{"env": "prod"} },
			"a2": func(a *store.Agent) {
				a.State, a.Labels = announce.StateOffline, map[string]string{"env": "test", "team": "b"}
			},
			"a3": func(a *store.Agent) {
				a.State, a.Update, a.Components = announce.StateOnline, &announce.AgentUpdate{State: "failed"}, []announce.Component{{Name: "loki"}}
			},
			"a4": func(a *store.Agent) {
				a.State, a.Components = announce.StateOnline, []announce.Component{{Name: "loki"}}
			},
			"a5": func(a *store.Agent) { a.State = announce.StateOnline },
			"a6": func(a *store.Agent) { a.State = announce.StateOffline; a.RevokedAt = noon },
		} {
			a := agent(id, "shop-"+id)
			a.Labels = nil
			change(&a)
			require.NoError(t, s.InsertAgent(ctx, a))
		}
		require.NoError(t, s.SetClones(ctx, "a5", []announce.Clone{{Instance: "copy"}}))

		found, err := s.FindAgentStates(ctx, store.AgentQuery{ByUrgency: true}, "env")
		require.NoError(t, err)
		assert.Equal(t, store.AgentStatesFound{Total: 6, Keys: []string{"env", "team"}, Agents: []store.AgentState{
			{ID: "a2", Name: "shop-a2", State: announce.StateOffline, Trouble: "offline", Value: "test"},
			{ID: "a5", Name: "shop-a5", State: announce.StateOnline, Trouble: store.TroubleClone},
			{ID: "a3", Name: "shop-a3", State: announce.StateOnline, Trouble: "update failed"},
			{ID: "a4", Name: "shop-a4", State: announce.StateOnline, Trouble: "component not ready"},
			{ID: "a1", Name: "shop-a1", State: announce.StateOnline, Value: "prod"},
			{ID: "a6", Name: "shop-a6", State: announce.StateRevoked},
		}}, found)
		found, err = s.FindAgentStates(ctx, store.AgentQuery{Wrong: true, Limit: 2}, "")
		require.NoError(t, err)
		assert.Equal(t, 4, found.Total)
		require.Len(t, found.Agents, 2)
		assert.Equal(t, []string{"shop-a2", "shop-a3"}, []string{found.Agents[0].Name, found.Agents[1].Name}, "by name")
		assert.Empty(t, found.Agents[0].Value)
	})
}

func TestRelease_IsFor(t *testing.T) {
	agent := store.Agent{ID: "a", Labels: map[string]string{"ring": "early"}}
	for _, c := range []struct {
		release store.Release
		want    bool
	}{
		{store.Release{}, true},
		{store.Release{Agents: []string{"b", "a"}}, true},
		{store.Release{Agents: []string{"b"}}, false},
		{store.Release{Labels: map[string]string{"ring": "early"}}, true},
		{store.Release{Labels: map[string]string{"ring": "late"}}, false},
		{store.Release{Labels: map[string]string{"zone": ""}}, false},
		{store.Release{Agents: []string{"a"}, Labels: map[string]string{"ring": "late"}}, false},
	} {
		assert.Equal(t, c.want, c.release.IsFor(agent), c.release)
	}
}
