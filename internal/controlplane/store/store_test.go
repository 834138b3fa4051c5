package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 123000, time.UTC)

func open(t *testing.T, file string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), file)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func fresh(t *testing.T) *store.Store {
	t.Helper()
	return open(t, filepath.Join(t.TempDir(), "a b?c.db"))
}

func agent(id, name string) store.Agent {
	used := int64(7)
	return store.Agent{ID: id, Name: name, ClusterUID: "uid-" + id, Labels: map[string]string{"zone": "a"}, State: announce.StatePending,
		Key: "k1", Capacity: announce.Capacity{Nodes: 3, UsedCPUMillis: &used}, EdgeAddress: "edge:1", RegisteredAt: noon, LastSeen: noon}
}

func enqueue(t *testing.T, s *store.Store, a store.Agent, kind announce.Type) announce.Event {
	t.Helper()
	var e announce.Event
	require.NoError(t, s.Update(t.Context(), func(tx *store.Tx) error {
		n, err := tx.NextSequence(t.Context(), a.ID)
		if err != nil {
			return err
		}
		if e, err = announce.NewAgentEvent(kind, "/controlplane", announce.Agent{ID: a.ID, Name: a.Name, State: a.State}, n, noon); err != nil {
			return err
		}
		return tx.Enqueue(t.Context(), e)
	}))
	return e
}

func TestTheFileIsForItsOwnerOnly(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.db")
	s := open(t, file)
	require.NoError(t, s.PutSetting(t.Context(), "a", "b"))
	for _, name := range []string{file, file + "-wal", file + "-shm"} {
		info, err := os.Stat(name)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
	}
}

func TestTokens(t *testing.T) {
	s, ctx := fresh(t), t.Context()
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
}

func TestAgents(t *testing.T) {
	s, ctx := fresh(t), t.Context()
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

	require.NoError(t, s.SaveBeat(ctx, "a2", noon.Add(time.Minute), &announce.Capacity{Nodes: 4}))
	require.NoError(t, s.SaveBeat(ctx, "a2", noon.Add(time.Second), &announce.Capacity{Nodes: 5}), "an older beat is ignored")
	got, err = s.Agent(ctx, "a2")
	require.NoError(t, err)
	assert.Equal(t, 4, got.Capacity.Nodes)
	assert.Equal(t, noon.Add(time.Minute), got.LastSeen)

	require.NoError(t, s.DeleteAgent(ctx, "a2"))
	require.ErrorIs(t, s.DeleteAgent(ctx, "a2"), store.ErrNotFound)
	list, err := s.Agents(ctx)
	require.NoError(t, err)
	assert.Len(t, list, 1)
}

func TestUpdateIsAllOrNothing(t *testing.T) {
	s, ctx := fresh(t), t.Context()
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
}

func TestOutboxKeepsOrderAndSurvivesReopening(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.db")
	s, err := store.Open(t.Context(), file)
	require.NoError(t, err)
	a := agent("a1", "shop")
	require.NoError(t, s.InsertAgent(t.Context(), a))
	var events []announce.Event
	for range 5 {
		events = append(events, enqueue(t, s, a, announce.AgentUpdated))
	}
	<-s.Queued()
	require.NoError(t, s.Close())

	s = open(t, file)
	queued, err := s.Outbox(t.Context(), 3)
	require.NoError(t, err)
	require.Len(t, queued, 3)
	for i, q := range queued {
		assert.Equal(t, events[i].ID, q.Event.ID)
		assert.Equal(t, uint64(i+1), q.Event.Sequence)
	}
	require.NoError(t, s.Announced(t.Context(), queued[2].ID))
	n, err := s.OutboxLength(t.Context())
	require.NoError(t, err)
	assert.Equal(t, 2, n)
}

func TestTimelineIsIdempotentAndBounded(t *testing.T) {
	s, ctx := fresh(t), t.Context()
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

	add(event("a1", store.TimelineLength+2))
	list, err = s.Timeline(ctx, "a1", 10)
	require.NoError(t, err)
	require.Len(t, list, 2)
	assert.Equal(t, uint64(3), list[0].Sequence)
}

func TestReceivedKnowsWhatCameBefore(t *testing.T) {
	s, ctx := fresh(t), t.Context()
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
}

func TestRunners(t *testing.T) {
	s, ctx := fresh(t), t.Context()
	first := store.Runner{Name: "r", Serial: "01", CreatedAt: noon, ExpiresAt: noon.Add(time.Hour)}
	require.NoError(t, s.PutRunner(ctx, first))
	require.NoError(t, s.RevokeCertificate(ctx, first, noon))
	require.NoError(t, s.RevokeCertificate(ctx, first, noon.Add(time.Minute)), "again")
	got, err := s.Runner(ctx, "r")
	require.NoError(t, err)
	assert.Equal(t, noon, got.RevokedAt)

	second := first
	second.Serial = "02"
	require.NoError(t, s.PutRunner(ctx, second))
	list, err := s.Runners(ctx)
	require.NoError(t, err)
	assert.Equal(t, []store.Runner{second}, list)
	serials, err := s.RevokedSerials(ctx, noon)
	require.NoError(t, err)
	assert.Equal(t, []string{"01"}, serials)
	serials, err = s.RevokedSerials(ctx, noon.Add(2*time.Hour))
	require.NoError(t, err)
	assert.Empty(t, serials, "expired certificates need no revoking")
}

func TestTwoProcessesShareTheFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.db")
	serve, cli := open(t, file), open(t, file)
	ctx, cancel := context.WithCancel(t.Context())
	changed, watching := make(chan struct{}, 100), make(chan error, 1)
	go func() {
		watching <- serve.Watch(ctx, time.Millisecond, func() { changed <- struct{}{} })
	}()
	deadline := time.After(10 * time.Second)
	for i := 0; ; i++ { // the first change may come before the watch began
		require.NoError(t, cli.PutSetting(t.Context(), "k", fmt.Sprint(i)))
		select {
		case <-changed:
		case <-time.After(20 * time.Millisecond):
			continue
		case <-deadline:
			t.Fatal("the change was not seen")
		}
		break
	}
	<-serve.Queued()
	cancel()
	require.NoError(t, <-watching)
	settings, err := serve.Settings(t.Context())
	require.NoError(t, err)
	assert.Contains(t, settings, "k")
	require.NoError(t, serve.Ping(t.Context()))
}

func TestManyWritersWaitForEachOther(t *testing.T) {
	s, ctx := fresh(t), t.Context()
	a := agent("a1", "shop")
	require.NoError(t, s.InsertAgent(ctx, a))
	done := make(chan error)
	for range 8 {
		go func() {
			done <- s.Update(ctx, func(tx *store.Tx) error { _, err := tx.NextSequence(ctx, "a1"); return err })
		}()
	}
	for range 8 {
		require.NoError(t, <-done)
	}
	got, err := s.Agent(ctx, "a1")
	require.NoError(t, err)
	assert.Equal(t, uint64(8), got.Sequence)
}
