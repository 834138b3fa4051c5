package store_test

import (
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// filledFile is a SQLite database with rows in every table.
func filledFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "x.db")
	s, err := store.Open(t.Context(), file)
	closing(t, s, err)
	b, err := store.BareFile(file)
	require.NoError(t, err)
	fill(t, b)
	require.NoError(t, b.Close())
	return file
}

func TestCopy(t *testing.T) {
	t.Parallel()
	d, ctx, file := hosted(t), t.Context(), filledFile(t)
	source, err := store.Open(ctx, file)
	closing(t, source, err)
	queued, err := source.Outbox(ctx, 1)
	require.NoError(t, err)
	require.NoError(t, source.Announced(ctx, queued[0].ID)) // its ID is not to be given again

	at := store.Postgres{URL: d.URL(), Log: zerolog.Nop()}
	done, err := store.Copy(ctx, file, at)
	require.NoError(t, err)
	rows := map[string]int64{}
	for _, c := range done {
		rows[c.Table] = c.Rows
	}
	assert.Subset(t, rows, map[string]int64{"agents": 2, "tokens": 1, "audit": 2, "outbox": 0, "releases": 1})

	target := openHosted(t, d)
	for _, what := range []func(*store.Store) (any, error){
		func(s *store.Store) (any, error) { return s.Agents(ctx) },
		func(s *store.Store) (any, error) { return s.Tokens(ctx) },
		func(s *store.Store) (any, error) { return s.Runners(ctx) },
		func(s *store.Store) (any, error) { return s.Releases(ctx) },
		func(s *store.Store) (any, error) { return s.Timeline(ctx, "a1", 10) },
		func(s *store.Store) (any, error) { return s.AuditAhead(ctx, "a1", 0, 10) },
		func(s *store.Store) (any, error) { return s.Settings(ctx) },
	} {
		want, err := what(source)
		require.NoError(t, err)
		require.NotEmpty(t, want)
		got, err := what(target)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	enqueue(t, target, store.Agent{ID: "a1", Name: "shop", State: announce.StateOnline}, announce.AgentUpdated)
	next, err := target.Outbox(ctx, 1)
	require.NoError(t, err)
	assert.Greater(t, next[0].ID, queued[0].ID)

	_, err = store.Copy(ctx, file, at)
	require.ErrorIs(t, err, store.ErrNotEmpty)
}

// TestCopy_Atomic fails in the last table.
func TestCopy_Atomic(t *testing.T) {
	t.Parallel()
	d, ctx, file := hosted(t), t.Context(), filledFile(t)
	s := openHosted(t, d)
	b, err := store.BarePostgres(store.Postgres{URL: d.URL()})
	require.NoError(t, err)
	require.NoError(t, b.Run(ctx, `ALTER TABLE timeline ADD CHECK (sequence > 1000)`))
	require.NoError(t, b.Close())
	_, err = store.Copy(ctx, file, store.Postgres{URL: d.URL()})
	require.ErrorContains(t, err, "table timeline")
	agents, err := s.Agents(ctx)
	require.NoError(t, err)
	assert.Empty(t, agents)

	require.NoError(t, s.Serve(ctx))
	_, err = store.Copy(ctx, file, store.Postgres{URL: d.URL()})
	require.ErrorIs(t, err, store.ErrServed)
}
