package outbox

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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

func slow(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 2*time.Minute, 50*time.Millisecond, what)
}
