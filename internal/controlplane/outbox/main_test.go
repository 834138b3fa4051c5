package outbox

import (
	"os"
	"testing"

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
