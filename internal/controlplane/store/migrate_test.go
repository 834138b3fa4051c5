package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
)

// site is a database with and without the store upon it.
type site struct {
	bare func(further ...fstest.MapFS) store.Bare
	open func() (*store.Store, error)
}

func newSite(t *testing.T, on postgres.Engine) site {
	t.Helper()
	bare := func(b store.Bare, err error) store.Bare {
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, b.Close()) })
		return b
	}
	if on == postgres.PostgreSQL {
		at := store.Postgres{URL: server.Database(t).URL(), Log: zerolog.Nop()}
		return site{
			func(further ...fstest.MapFS) store.Bare { return bare(store.BarePostgres(at, further...)) },
			func() (*store.Store, error) { return store.OpenPostgres(t.Context(), at) },
		}
	}
	file := filepath.Join(t.TempDir(), "x.db")
	return site{
		func(further ...fstest.MapFS) store.Bare { return bare(store.BareFile(file, further...)) },
		func() (*store.Store, error) { return store.Open(t.Context(), file) },
	}
}

// fill puts rows into every table.
func fill(t *testing.T, b store.Bare) {
	t.Helper()
	rows, err := os.ReadFile(filepath.Join("testdata", "rows.sql"))
	require.NoError(t, err)
	require.NoError(t, b.Run(t.Context(), string(rows)))
}

// later is a migration after those that there are.
var later = fstest.MapFS{"migrations/00099_later.sql": &fstest.MapFile{Data: []byte(`-- +goose Up
CREATE TABLE later (agent_id TEXT PRIMARY KEY REFERENCES agents (id) ON DELETE CASCADE, n BIGINT NOT NULL, raw BLOB);
INSERT INTO later (agent_id, n) SELECT id, sequence FROM agents;
ALTER TABLE agents ADD COLUMN note TEXT NOT NULL DEFAULT 'none';
-- +goose Down
ALTER TABLE agents DROP COLUMN note;
DROP TABLE later;
`)}}

// TestMigration_KeepsData also checks that a program which does not know a migration refuses the
// database.
func TestMigration_KeepsData(t *testing.T) {
	postgres.OnEach(t, func(t *testing.T, on postgres.Engine) {
		t.Parallel()
		at, ctx := newSite(t, on), t.Context()
		s, err := at.open()
		s = closing(t, s, err)
		b := at.bare(later)
		fill(t, b)
		before := counts(t, b, on)
		_, err = b.Up(ctx)
		require.NoError(t, err)
		after := counts(t, b, on)
		assert.Equal(t, "2", after["later"])
		delete(after, "later")
		assert.Equal(t, before, after)
		readAll(t, s)

		_, err = at.open()
		require.ErrorContains(t, err, "the database has version 99 of the tables, and this program knows 1 at most")
		_, err = b.Down(ctx)
		require.NoError(t, err)
		again, err := at.open()
		readAll(t, closing(t, again, err))
	})
}

// readAll reads what testdata/rows.sql wrote.
func readAll(t *testing.T, s *store.Store) {
	t.Helper()
	ctx := t.Context()
	agents, err := s.Agents(ctx)
	require.NoError(t, err)
	require.Len(t, agents, 2)
	a, err := s.AgentNamed(ctx, "shop")
	require.NoError(t, err)
	assert.Equal(t, []any{"a1", announce.StateOnline, "k1", 3, uint64(2), false},
		[]any{a.ID, a.State, a.PreviousKey, a.Capacity.Nodes, a.Sequence, a.Revoked()})
	assert.Equal(t, map[string]string{"zone": "a"}, a.Labels)
	assert.Equal(t, &announce.AgentUpdate{State: "done", To: "v1.2.3"}, a.Update)
	queued, err := s.Outbox(ctx, 10)
	require.NoError(t, err)
	require.Len(t, queued, 1)
	assert.Equal(t, "e2", queued[0].Event.ID)
	waiting, err := s.PendingDeliveries(ctx, "pager", "a1", 10)
	require.NoError(t, err)
	require.Len(t, waiting, 1)
	assert.Equal(t, 503, waiting[0].Status)
}

func TestMigration_UnreleasedBuild(t *testing.T) {
	postgres.OnEach(t, func(t *testing.T, on postgres.Engine) {
		t.Parallel()
		at := newSite(t, on)
		s, err := at.open()
		require.NoError(t, err)
		require.NoError(t, s.Close())
		b := at.bare()
		for _, change := range []string{"UPDATE settings SET value = 'another' WHERE name = 'tables'", "DELETE FROM settings WHERE name = 'tables'"} {
			require.NoError(t, b.Run(t.Context(), change))
			_, err = at.open()
			require.ErrorContains(t, err, "of a build that was never released", change)
		}
	})
}

func TestMigration_Down(t *testing.T) {
	postgres.OnEach(t, func(t *testing.T, on postgres.Engine) {
		t.Parallel()
		b, ctx := newSite(t, on).bare(), t.Context()
		_, err := b.Up(ctx)
		require.NoError(t, err)
		fill(t, b)
		_, err = b.DownTo(ctx, 0)
		require.NoError(t, err)
		assert.Empty(t, counts(t, b, on))
		_, err = b.Up(ctx)
		require.NoError(t, err)
	})
}

// TestMigration_SameSchemas compares columns, keys and indexes of SQLite's and
// PostgreSQL's tables.
func TestMigration_SameSchemas(t *testing.T) {
	t.Parallel()
	file, server := newSite(t, postgres.SQLite).bare(), newSite(t, postgres.PostgreSQL).bare()
	for _, b := range []store.Bare{file, server} {
		_, err := b.Up(t.Context())
		require.NoError(t, err)
	}
	types := strings.NewReplacer("INTEGER", "bigint", "BIGINT", "bigint", "TEXT", "text", "BLOB", "bytea")
	want := list(t, file, `SELECT t.name || '.' || c.name || ' ' || c.type || ' ' || (c."notnull" OR c.pk > 0) || ' ' || c.pk || ' ' || COALESCE(c.dflt_value, '')
		FROM sqlite_master t JOIN pragma_table_info(t.name) c WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%' AND t.name NOT LIKE 'goose%'`)
	for i := range want {
		want[i] = types.Replace(want[i])
	}
	got := list(t, server, `SELECT c.table_name || '.' || c.column_name || ' ' || c.data_type || ' ' || (c.is_nullable = 'NO')::int || ' ' ||
			COALESCE(array_position(k.keys, a.attnum) + 1, 0) || ' ' || COALESCE(split_part(c.column_default, '::', 1), '')
		FROM information_schema.columns c
		JOIN pg_attribute a ON a.attrelid = c.table_name::regclass AND a.attname = c.column_name
		LEFT JOIN (SELECT indrelid, indkey AS keys FROM pg_index WHERE indisprimary) k ON k.indrelid = a.attrelid
		WHERE c.table_schema = 'public' AND c.table_name NOT LIKE 'goose%'`)
	require.NotEmpty(t, want)
	assert.ElementsMatch(t, want, got)

	indexes := `SELECT %s || ' ' || %s FROM %s WHERE %s`
	want = list(t, file, fmt.Sprintf(indexes, "name", "tbl_name", "sqlite_master", "type = 'index' AND sql IS NOT NULL"))
	got = list(t, server, fmt.Sprintf(indexes, "indexname", "tablename", "pg_indexes",
		"schemaname = 'public' AND tablename NOT LIKE 'goose%' AND indexname NOT IN (SELECT conname FROM pg_constraint)"))
	require.NotEmpty(t, want)
	assert.ElementsMatch(t, want, got)
}

// counts are the rows of each table.
func counts(t *testing.T, b store.Bare, on postgres.Engine) map[string]string {
	t.Helper()
	tables := `SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND name NOT LIKE 'goose%'`
	if on == postgres.PostgreSQL {
		tables = `SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename NOT LIKE 'goose%'`
	}
	rows := map[string]string{}
	for _, table := range list(t, b, tables) {
		rows[table] = list(t, b, "SELECT COUNT(*) FROM "+table)[0]
	}
	return rows
}

// list is a query's only column.
func list(t *testing.T, b store.Bare, query string) (texts []string) {
	t.Helper()
	rows, err := b.QueryContext(t.Context(), query)
	require.NoError(t, err)
	defer func() { require.NoError(t, rows.Close()) }()
	for rows.Next() {
		var text string
		require.NoError(t, rows.Scan(&text))
		texts = append(texts, text)
	}
	require.NoError(t, rows.Err())
	return texts
}
