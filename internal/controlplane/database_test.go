package controlplane

import (
	"os"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
	"github.com/pipeops/pipeops-vm-agent/test/testmain"
)

// What the tests share.
var (
	databases postgres.Shared
	rabbit    broker.Shared
)

func TestMain(m *testing.M) { os.Exit(testmain.Wrap(m, databases.Stop, rabbit.Stop).Run()) }

// newDatabase makes an empty database on PostgreSQL. SQLite needs none: its file is in the data
// directory.
func newDatabase(t testing.TB, on postgres.Engine) store.Postgres {
	t.Helper()
	if on == postgres.SQLite {
		return store.Postgres{}
	}
	return store.Postgres{URL: databases.Database(t).URL(), Log: zerolog.Nop()}
}

// newStore opens an empty database.
func newStore(t testing.TB, on postgres.Engine) *store.Store {
	t.Helper()
	s, err := Data{Dir: t.TempDir(), Database: newDatabase(t, on)}.openStore(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}
