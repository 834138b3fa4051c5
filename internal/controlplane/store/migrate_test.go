package store_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
)

// site is a database with and without the store upon it.
type site struct {
	bare func() store.Bare
	open func() *store.Store
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
		return site{func() store.Bare { return bare(store.BarePostgres(at)) }, func() *store.Store {
			s, err := store.OpenPostgres(t.Context(), at)
			return closing(t, s, err)
		}}
	}
	file := filepath.Join(t.TempDir(), "x.db")
	return site{func() store.Bare { return bare(store.BareFile(file)) }, func() *store.Store {
		s, err := store.Open(t.Context(), file)
		return closing(t, s, err)
	}}
}

// versions are those of the migrations, in order.
func versions(b store.Bare) (list []int64) {
	for _, source := range b.ListSources() {
		list = append(list, source.Version)
	}
	return list
}

// fill puts rows into a database of that version, as the program of that version
// left them: testdata/rows has a file for each migration that brought something.
func fill(t *testing.T, b store.Bare, version int64) {
	t.Helper()
	for _, v := range versions(b) {
		rows, err := os.ReadFile(filepath.Join("testdata", "rows", fmt.Sprintf("%05d.sql", v)))
		if v > version || os.IsNotExist(err) {
			continue
		}
		require.NoError(t, err)
		require.NoError(t, b.Run(t.Context(), string(rows)), "rows of migration %d", v)
	}
}

// TestMigrationsKeepWhatIsThere brings a database of each earlier version, with
// rows in it, up to date by opening it.
func TestMigrationsKeepWhatIsThere(t *testing.T) { postgres.OnEach(t, testMigrationsKeepWhatIsThere) }

func testMigrationsKeepWhatIsThere(t *testing.T, on postgres.Engine) {
	t.Parallel()
	for _, version := range versions(newSite(t, on).bare()) {
		t.Run(fmt.Sprintf("from version %d", version), func(t *testing.T) {
			at := newSite(t, on)
			b := at.bare()
			_, err := b.UpTo(t.Context(), version)
			require.NoError(t, err)
			fill(t, b, version)
			before := counts(t, b, on)
			s := at.open()
			for table, n := range before {
				assert.Equal(t, n, counts(t, b, on)[table], "rows of table %s", table)
			}
			readAll(t, s, version)
		})
	}
}

// readAll reads what the files in testdata/rows wrote.
func readAll(t *testing.T, s *store.Store, version int64) {
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
	tokens, err := s.Tokens(ctx)
	require.NoError(t, err)
	require.Len(t, tokens, 1)
	assert.Equal(t, 5, tokens[0].MaxUses)
	runners, err := s.Runners(ctx)
	require.NoError(t, err)
	assert.Len(t, runners, 1)
	serials, err := s.RevokedSerials(ctx, noon)
	require.NoError(t, err)
	assert.Equal(t, []string{"01"}, serials)
	queued, err := s.Outbox(ctx, 10)
	require.NoError(t, err)
	require.Len(t, queued, 1)
	assert.Equal(t, "e2", queued[0].Event.ID)
	timeline, err := s.Timeline(ctx, "a1", 10)
	require.NoError(t, err)
	assert.Len(t, timeline, 1)
	byType, _, err := s.TimelinePage(ctx, store.TimelineQuery{AgentID: "a1", Types: []announce.Type{announce.AgentOnline}, Since: timeline[0].Time, Limit: 10})
	require.NoError(t, err)
	assert.Len(t, byType, 1, "older versions' events can be selected, too")
	if version < 2 {
		return
	}
	audit, err := s.Audit(ctx, "a1", 10)
	require.NoError(t, err)
	require.Len(t, audit, 2)
	assert.Equal(t, []bool{false, true}, []bool{audit[0].Broken, audit[1].Broken})
	if version < 3 {
		return
	}
	release, err := s.Release(ctx, "r1")
	require.NoError(t, err)
	assert.Equal(t, "manifest", string(release.Manifest))
	assert.Equal(t, &announce.AgentUpdate{State: "done", To: "v1.2.3"}, a.Update)
	if version < 9 {
		return
	}
	hook, err := s.Webhook(ctx, "pager")
	require.NoError(t, err)
	assert.Equal(t, []string{"app.failed"}, hook.Types)
	waiting, err := s.PendingDeliveries(ctx, "pager", "a1", 10)
	require.NoError(t, err)
	require.Len(t, waiting, 1)
	assert.Equal(t, 503, waiting[0].Status)
}

// TestMigrationsGoDown: what a migration made its way back removes, nothing else.
func TestMigrationsGoDown(t *testing.T) { postgres.OnEach(t, testMigrationsGoDown) }

func testMigrationsGoDown(t *testing.T, on postgres.Engine) {
	t.Parallel()
	b, ctx := newSite(t, on).bare(), t.Context()
	_, err := b.Up(ctx)
	require.NoError(t, err)
	fill(t, b, 1<<62)
	_, err = b.DownTo(ctx, 0)
	require.NoError(t, err)
	assert.Empty(t, counts(t, b, on))
	_, err = b.Up(ctx)
	require.NoError(t, err)
}

// TestBothSchemasAreTheSame compares columns, keys and indexes of SQLite's and
// PostgreSQL's tables.
func TestBothSchemasAreTheSame(t *testing.T) {
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
