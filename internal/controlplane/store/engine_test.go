package store_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/testmain"
)

// server is the PostgreSQL of all tests.
var server postgres.Shared

func TestMain(m *testing.M) { os.Exit(testmain.Wrap(m, server.Stop).Run()) }

// place makes a database and returns what opens it: twice is two processes.
func place(t *testing.T, on postgres.Engine) func() *store.Store {
	t.Helper()
	if on == postgres.PostgreSQL {
		at := store.Postgres{URL: server.Database(t).URL(), Log: zerolog.Nop()}
		return func() *store.Store {
			s, err := store.OpenPostgres(t.Context(), at)
			return closing(t, s, err)
		}
	}
	file := filepath.Join(t.TempDir(), "a b?c.db")
	return func() *store.Store {
		s, err := store.Open(t.Context(), file)
		return closing(t, s, err)
	}
}

func closing(t *testing.T, s *store.Store, err error) *store.Store {
	t.Helper()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// fresh is a new database.
func fresh(t *testing.T, on postgres.Engine) *store.Store {
	t.Helper()
	return place(t, on)()
}

// onEach runs a test on a new database of each engine.
func onEach(t *testing.T, test func(t *testing.T, s *store.Store)) {
	t.Helper()
	onEachPlace(t, func(t *testing.T, open func() *store.Store) { test(t, open()) })
}

// onEachPlace is like onEach for tests that open the database themselves.
func onEachPlace(t *testing.T, test func(t *testing.T, open func() *store.Store)) {
	t.Helper()
	postgres.OnEach(t, func(t *testing.T, on postgres.Engine) {
		t.Parallel()
		test(t, place(t, on))
	})
}
