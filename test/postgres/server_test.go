package postgres

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// TestPostgres_Life takes a real server through all it can do.
func TestPostgres_Life(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real PostgreSQL")
	}
	ctx := t.Context()
	var out bytes.Buffer
	s, err := Start(ctx, Options{Out: &out})
	require.NoError(t, err)
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			assert.NoError(t, s.Stop())
		}
	})
	assert.Contains(t, out.String(), "up on port")
	one, err := s.NewDatabase(ctx)
	require.NoError(t, err)
	two, err := s.NewDatabase(ctx)
	require.NoError(t, err)

	conn, err := pgx.Connect(ctx, one.URL())
	require.NoError(t, err)
	_, err = conn.Exec(ctx, "CREATE TABLE kept (n BIGINT)")
	require.NoError(t, err, "the owner makes tables")
	_, err = conn.Exec(ctx, "CREATE ROLE other")
	require.ErrorContains(t, err, "permission denied")

	for name, change := range map[string]func(*url.URL){
		"pg_hba.conf":   func(u *url.URL) { u.RawQuery = "sslmode=disable" },
		"certificate":   func(u *url.URL) { u.RawQuery = "sslmode=verify-full" },
		"password auth": func(u *url.URL) { u.User = url.UserPassword(one.Name, "wrong") },
	} {
		u, err := url.Parse(one.URL())
		require.NoError(t, err)
		change(u)
		_, err = pgx.Connect(ctx, u.String())
		require.ErrorContains(t, err, name)
	}

	require.NoError(t, s.Crash())
	_, err = conn.Exec(ctx, "SELECT 1")
	require.Error(t, err)
	require.NoError(t, s.Restart(ctx))
	conn, err = pgx.Connect(ctx, one.URL())
	require.NoError(t, err)
	var kept int
	require.NoError(t, conn.QueryRow(ctx, "SELECT COUNT(*) FROM kept").Scan(&kept))
	checkHold(t, s, one)
	require.NoError(t, one.Cut(ctx))
	require.Error(t, conn.Ping(ctx))
	require.NoError(t, one.Drop(ctx))
	require.NoError(t, two.Drop(ctx))

	dir := s.dir
	stopped = true
	require.NoError(t, s.Stop())
	_, err = os.Stat(dir)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// checkHold holds the server: it and its backends stand still, and answer afterwards.
func checkHold(t *testing.T, s *Server, d *Database) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), d.URLOver(s.Port()))
	require.NoError(t, err)
	require.NoError(t, s.Hold())
	server := s.process.cmd.Process.Pid
	backends, err := children(server)
	require.NoError(t, err)
	require.NotEmpty(t, backends)
	for _, pid := range append(backends, server) {
		await.Until(t, fmt.Sprintf("process %d stands still", pid), func() bool { return stopped(t, pid) })
	}
	require.NoError(t, s.Resume())
	_, err = conn.Exec(t.Context(), "SELECT 1")
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
}

// stopped reports whether a signal has stopped a process (proc(5), stat: the state comes after
// the name in parentheses).
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	_, rest, found := bytes.Cut(stat, []byte(") "))
	require.True(t, found, "%s", stat)
	return rest[0] == 'T'
}

func TestPostgres_NewestServer(t *testing.T) {
	assert.Greater(t, versionOf("/usr/lib/postgresql/17/bin/initdb"), versionOf("/usr/lib/postgresql/9.6/bin/initdb"))
}
