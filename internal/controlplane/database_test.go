package controlplane

import (
	"os"
	"testing"

	"github.com/rs/zerolog"

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
