package controlplane

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/test/storetest"
)

// TestHeartbeat_BatchedOnSQLite counts what ten heartbeats of each of a hundred agents cost the
// database: one row each, in one transaction, and nothing before it.
func TestHeartbeat_BatchedOnSQLite(t *testing.T) {
	const agents, beats = 100, 10
	dir := t.TempDir()
	c, err := New(t.Context(), Config{DataDir: dir, APIListen: "127.0.0.1:0", TunnelListen: "127.0.0.1:0", EdgeListen: "127.0.0.1:0", Log: zerolog.Nop()})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	fleet := storetest.Fill(t, c.store, agents)
	db := storetest.SQLite(t, filepath.Join(dir, datadir.FileDatabase))
	written := func() int64 {
		wal, err := os.Stat(filepath.Join(dir, datadir.FileDatabase+"-wal"))
		require.NoError(t, err)
		return wal.Size()
	}
	beat := func() {
		for _, g := range fleet {
			_, err := c.fleet.Heartbeat(t.Context(), g.ID, controlapi.Heartbeat{Capacity: controlapi.Capacity{RunningPods: 3}})
			require.NoError(t, err)
		}
	}
	beat() // the first after a start is compared with what is stored
	require.NoError(t, c.liveness.Flush(t.Context()))
	for _, statement := range []string{
		`CREATE TABLE counted (what TEXT)`,
		`CREATE TRIGGER count_agents AFTER UPDATE ON agents BEGIN INSERT INTO counted VALUES ('agent'); END`,
		`CREATE TRIGGER count_outbox AFTER INSERT ON outbox BEGIN INSERT INTO counted VALUES ('event'); END`,
		`PRAGMA wal_checkpoint(TRUNCATE)`,
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	rows := func(what string) (n int) {
		require.NoError(t, db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM counted WHERE what = ?`, what).Scan(&n))
		return n
	}
	for range beats {
		beat()
	}
	assert.Zero(t, written(), "a heartbeat alone writes nothing")
	require.NoError(t, c.liveness.Flush(t.Context()))
	assert.Equal(t, agents, rows("agent"))
	assert.Zero(t, rows("event"))
	after := written()
	t.Logf("%d heartbeats wrote %d KiB", agents*beats, after>>10)
	assert.Less(t, after, int64(agents*1024), "the counting included")
	require.NoError(t, c.liveness.Flush(t.Context()))
	assert.Equal(t, after, written(), "what is written is not written again")
}
