package controlplane

import (
	"os"
	"testing"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
)

var (
	databases  postgres.Shared
	onPostgres bool
)

// TestMain runs every test twice: on SQLite, and, unless -short is given, on
// PostgreSQL.
func TestMain(m *testing.M) { os.Exit(databases.Twice(m, &onPostgres)) }

// newDatabase is an empty one of PostgreSQL's, or none for SQLite.
func newDatabase(t testing.TB) store.Postgres {
	t.Helper()
	if !onPostgres {
		return store.Postgres{}
	}
	return store.Postgres{URL: databases.Database(t).URL(), Log: zerolog.Nop()}
}
