// Package storetest opens databases of the control plane for tests of its packages.
package storetest

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
)

// Open opens an empty database until the test ends.
func Open(t testing.TB, databases *postgres.Shared, on postgres.Engine) *store.Store {
	t.Helper()
	var s *store.Store
	var err error
	if on == postgres.SQLite {
		s, err = store.Open(t.Context(), filepath.Join(t.TempDir(), "controlplane.db"))
	} else {
		s, err = store.OpenPostgres(t.Context(), store.Postgres{URL: databases.Database(t).URL(), Log: zerolog.Nop()})
	}
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// SQLite opens the file of a database that a store may be writing to. It waits for the store's
// transactions, where a connection without these settings would fail with SQLITE_BUSY.
func SQLite(t testing.TB, file string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

// Fill adds agents, and Runners that may see them.
func Fill(b testing.TB, s *store.Store, agents int) []store.Agent {
	b.Helper()
	fleet := make([]store.Agent, agents)
	require.NoError(b, s.Update(b.Context(), func(tx *store.Tx) error {
		for i := range fleet {
			id := fmt.Sprintf("agent-%04d", i)
			fleet[i] = store.Agent{ID: id, Name: id, ClusterUID: id, State: announce.StateOnline, EdgeAddress: "e:1", Labels: map[string]string{"env": "prod"}}
			if err := tx.InsertAgent(b.Context(), fleet[i]); err != nil {
				return err
			}
		}
		for _, name := range []string{"ci", "builder", "portal"} {
			err := tx.PutRunner(b.Context(), store.Runner{Name: name, Serial: name, Agents: "env=prod", CreatedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour)})
			if err != nil {
				return err
			}
		}
		return nil
	}))
	return fleet
}
