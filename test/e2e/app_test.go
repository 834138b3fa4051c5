package e2e

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// Exit codes of pipeops-runner, as its help lists them.
const (
	exitFailed      = 3 // the App is Failed
	exitNotFound    = 4
	exitUnreachable = 5
	exitNoOutcome   = 6
	exitRefused     = 7
)

// pipeops runs pipeops-runner in the tests' namespace and wants success.
func pipeops(t *testing.T, args ...string) string {
	t.Helper()
	out, err := sys.Runner(t.Context(), runner, args...)
	require.NoError(t, err)
	return out
}

// refused runs pipeops-runner and wants an exit code; it answers what was said.
func refused(t *testing.T, code int, args ...string) string {
	t.Helper()
	_, err := sys.Runner(t.Context(), runner, args...)
	var exit *harness.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, code, exit.Code, exit.Stderr)
	return exit.Stderr
}

func removeApp(t *testing.T, name string) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
		defer cancel()
		_, err := sys.Runner(ctx, runner, "delete", agentName, name)
		var exit *harness.ExitError
		if err != nil && (!errors.As(err, &exit) || exit.Code != exitNotFound) {
			t.Error(err)
		}
	})
}
