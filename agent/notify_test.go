package agent

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serviceManager is systemd's end of the notification socket (sd_notify(3)).
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

const patience = 3 * time.Minute

func TestSystemdIsToldHowTheAgentIs(t *testing.T) {
	socket := serviceManager(t)
	t.Setenv("WATCHDOG_USEC", "30000") // 30 ms
	a := &Agent{health: newHealth(), log: zerolog.Nop()}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	end := a.notify(ctx)
	assert.Equal(t, "STATUS=starting", receive(t, socket))
	assert.Equal(t, "STATUS=apps: starting; identity: starting; policy: starting; tunnel: starting\nWATCHDOG=1", receive(t, socket))

	for _, check := range []string{"identity", "tunnel", "apps", "policy"} {
		a.health.set(check, stateOK)
	}
	receiveUntil(t, socket, "READY=1\nSTATUS=ready\nWATCHDOG=1")
	receiveUntil(t, socket, "WATCHDOG=1")
	a.health.remark("tunnels", func() string { return "tunnels: 1 of 2 up" })
	receiveUntil(t, socket, "STATUS=ready; tunnels: 1 of 2 up\nWATCHDOG=1")
	a.health.ask("tunnel", func() string { return "waiting:\nno route" })
	receiveUntil(t, socket, "STATUS=tunnel: waiting: no route\nWATCHDOG=1")
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

func TestNobodyIsToldWithoutSystemd(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	a := &Agent{health: &health{checks: map[string]func() string{"x": func() string {
		panic(errors.New("nobody asked"))
	}}}, log: zerolog.Nop()}
	a.notify(t.Context())()
}
