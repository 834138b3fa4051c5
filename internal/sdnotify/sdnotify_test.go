package sdnotify_test

import (
	"context"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/sdnotify"
)

const patience = 3 * time.Minute

// serviceManager is systemd's end of the notification socket.
func serviceManager(t *testing.T) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	t.Setenv("NOTIFY_SOCKET", path)
	return conn
}

func receive(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	buf := make([]byte, 4096)
	n, err := conn.Read(buf)
	require.NoError(t, err)
	return string(buf[:n])
}

// process is what systemd has started: it is ready once its status says so.
type process struct{ status atomic.Pointer[string] }

func (p *process) is(status string) { p.status.Store(&status) }

func (p *process) look(context.Context) (ready bool, status string) {
	status = *p.status.Load()
	return status == "ready", status
}

func TestNotify(t *testing.T) {
	socket := serviceManager(t)
	t.Setenv("WATCHDOG_USEC", "30000") // 30 ms
	var p process
	p.is("no tunnel")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	end := sdnotify.Start(ctx, p.look, zerolog.Nop())
	assert.Equal(t, "STATUS=starting", receive(t, socket))
	assert.Equal(t, "STATUS=no tunnel\nWATCHDOG=1", receive(t, socket))

	p.is("ready")
	receiveUntil(t, socket, "READY=1\nSTATUS=ready\nWATCHDOG=1")
	receiveUntil(t, socket, "WATCHDOG=1")
	p.is("waiting:\nno route")
	receiveUntil(t, socket, "STATUS=waiting: no route\nWATCHDOG=1")
	p.is("ready")
	receiveUntil(t, socket, "STATUS=ready\nWATCHDOG=1") // READY=1 once
	stop()
	receiveUntil(t, socket, "STOPPING=1")
	receiveUntil(t, socket, "WATCHDOG=1") // while it drains
	end()
}

// receiveUntil passes over signs of life.
func receiveUntil(t *testing.T, socket *net.UnixConn, want string) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		got := receive(t, socket)
		if got == want {
			return
		}
		require.True(t, time.Now().Before(end), "waiting for %q: %q", want, got)
		require.Contains(t, got, "WATCHDOG=1", "instead of %q", want)
		require.NotContains(t, got, "READY=1", "instead of %q", want)
	}
}

func TestNotify_NoSystemd(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	sdnotify.Start(t.Context(), func(context.Context) (bool, string) { panic("nobody asked") }, zerolog.Nop())()
}
