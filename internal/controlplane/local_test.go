package controlplane

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

// here returns the client of a caller on the control plane's machine.
func here(p *plane) *operatorapi.Client {
	p.t.Helper()
	data := datadir.Data{Dir: p.cfg.DataDir}
	client := operatorapi.NewSocketClient(data.DialSocket, "test")
	p.t.Cleanup(func() { assert.NoError(p.t, client.Close()) })
	return client
}

// TestSocket_AdmitsWithoutCredentials: callers may do everything, and are in the audit log by their
// user.
func TestSocket_AdmitsWithoutCredentials(t *testing.T) {
	p := start(t)
	socket := filepath.Join(p.cfg.DataDir, "operators.sock")
	info, err := os.Stat(socket)
	require.NoError(t, err)
	assert.Equal(t, os.ModeSocket|0o600, info.Mode())

	_, err = operatorapi.CreateOperator.Do(t.Context(), here(p), operatorapi.CreateOperatorInput{
		Body: operatorapi.CreateOperatorBody{Name: "alice", Role: operators.RoleAdmin, TTL: operatorapi.Duration(time.Hour)},
	})
	require.NoError(t, err)
	var refused *problem.Error
	_, err = operatorapi.CreateConsoleCode.Do(t.Context(), here(p), operatorapi.ConsoleCodeInput{})
	require.ErrorAs(t, err, &refused, "a session is bound to a certificate")
	assert.Equal(t, problem.Conflict, refused.Code)
	_, err = operatorapi.RenewOperator.Do(t.Context(), here(p), operatorapi.RenewOperatorInput{})
	require.ErrorAs(t, err, &refused)
	assert.Equal(t, problem.Conflict, refused.Code)

	await.Until(t, "both records of the change are in the audit log", func() bool {
		found, err := operatorapi.GetOperatorAudit.Do(t.Context(), here(p), operatorapi.OperatorAuditInput{After: -1, Limit: 100})
		require.NoError(t, err)
		outcomes := 0
		for _, r := range found.Items {
			if r.Command == "create-operator" && strings.HasPrefix(r.Operator, "local/") && r.Certificate == "" {
				outcomes++
			}
		}
		return outcomes == 2
	})
	p.stop()
	assert.NoFileExists(t, socket)
}

// TestSocket_AdmitsTwoUsers: the two are root and the control plane's user.
func TestSocket_AdmitsTwoUsers(t *testing.T) {
	call := func(from any) int {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(context.WithValue(t.Context(), peerKey{}, from), http.MethodGet, "/", nil)
		admitLocal(http.NotFoundHandler()).ServeHTTP(w, r)
		return w.Code
	}
	own := uint32(os.Geteuid())
	assert.Equal(t, http.StatusNotFound, call(peer{uid: 0}))
	assert.Equal(t, http.StatusNotFound, call(peer{uid: own}))
	assert.Equal(t, http.StatusForbidden, call(peer{uid: own + 1000}))
	assert.Equal(t, http.StatusForbidden, call(peer{uid: own, err: net.ErrClosed}))
	assert.Equal(t, http.StatusForbidden, call(nil))
	one, other := net.Pipe()
	require.NoError(t, one.Close())
	require.NoError(t, other.Close())
	require.Error(t, peerOf(one).err)
}

// TestSocket_ReplacesStale: the error says until then that no control plane serves.
func TestSocket_ReplacesStale(t *testing.T) {
	data := datadir.Data{Dir: t.TempDir()}
	_, err := data.DialSocket(t.Context())
	require.ErrorContains(t, err, "is not the data directory of a control plane on this machine")
	left, err := data.ListenSocket(t.Context())
	require.NoError(t, err)
	left.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, left.Close())
	_, err = data.DialSocket(t.Context())
	require.ErrorContains(t, err, "no control plane serves "+data.Dir)
	p := start(t, func(cfg *Config) { cfg.DataDir = data.Dir })
	_, err = operatorapi.ListTokens.Do(t.Context(), here(p), struct{}{})
	require.NoError(t, err)
}

// TestSocket_PathTooLong: the control plane serves where the kernel accepts no socket.
func TestSocket_PathTooLong(t *testing.T) {
	var log bytes.Buffer
	p := start(t, func(cfg *Config) {
		cfg.DataDir = filepath.Join(t.TempDir(), strings.Repeat("long", 30))
		cfg.Log = zerolog.New(zerolog.SyncWriter(&log))
	})
	_, err := operatorapi.ListTokens.Do(t.Context(), p.first(), struct{}{})
	require.NoError(t, err)
	p.stop()
	assert.Contains(t, log.String(), "commands on this machine need an operator's credentials")
	assert.Contains(t, log.String(), "choose a data directory with a shorter path")
}
