package command

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
)

// withWeb is a world in which the App web runs.
func withWeb(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	code, _, stderr := w.run(t, "deploy", "shop", "web", "--image", "a")
	require.Equal(t, cmdutil.ExitOK, code, stderr)
	return w
}

var listens = regexp.MustCompile(`(127\.0\.0\.1:[0-9]+) goes to port`)

func TestPortForward_UntilInterrupted(t *testing.T) {
	t.Parallel()
	w := withWeb(t)
	r := w.start(t, false, "", "port-forward", "shop", "web", ":7", ":81")
	r.sees(t, "port 81 of production/web")
	addresses := listens.FindAllStringSubmatch(r.err.String(), 2)
	require.Len(t, addresses, 2)
	for range 3 {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addresses[0][1])
		require.NoError(t, err)
		_, err = io.WriteString(conn, "echo")
		require.NoError(t, errors.Join(err, conn.(*net.TCPConn).CloseWrite()))
		echo, err := io.ReadAll(conn)
		require.NoError(t, errors.Join(err, conn.Close()))
		assert.Equal(t, "echo", string(echo))
	}
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addresses[1][1])
	require.NoError(t, err)
	_, _ = io.ReadAll(conn)
	require.NoError(t, conn.Close())
	r.sees(t, "nothing listens on port 81")
	r.cancel()
	assert.Equal(t, cmdutil.ExitOK, r.ended(t))
	_, err = (&net.Dialer{}).DialContext(t.Context(), "tcp", addresses[0][1])
	require.Error(t, err, "it listens no more")
}

// TestPortForward_Refused ends with the code and the exit code of the refusal.
func TestPortForward_Refused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.agent.Backend.Intercept = func(_ context.Context, call runnertest.Call) error {
		if call.Verb == "Apps.PortForward" {
			return problem.New(http.StatusForbidden, runnerapi.CodePolicyDenied, "ask the owner", "no rule allows it")
		}
		return nil
	}
	code, _, stderr := w.run(t, "deploy", "shop", "web", "--image", "a")
	require.Equal(t, cmdutil.ExitOK, code, stderr)
	r := w.start(t, false, "", "port-forward", "shop", "web", ":7")
	r.sees(t, "goes to port 7")
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listens.FindStringSubmatch(r.err.String())[1])
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	assert.Equal(t, cmdutil.ExitRefused, r.ended(t), r.err.String())
	assert.Contains(t, r.err.String(), "production/web: no rule allows it\n  fix: ask the owner\n  code: PO-3001 policy_denied")
}
