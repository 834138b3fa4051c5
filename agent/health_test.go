package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/freeport"
	"github.com/pipeops/pipeops-vm-agent/test/hostile"
)

// TestHealthPort_HostilePeers: one pod takes all that it may and sends slowly; the kubelet still
// gets its replies.
func TestHealthPort_HostilePeers(t *testing.T) {
	address := freeport.Address(t)
	stop, err := newHealth().serve(t.Context(), address, "v1", zerolog.Nop())
	require.NoError(t, err)
	defer stop()

	for range 2 * healthPerPeer {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 9)}}
		conn, err := d.DialContext(t.Context(), "tcp", address)
		if err != nil { // those past the limit
			require.ErrorIs(t, err, syscall.ECONNRESET)
			continue
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nX-")
	}
	assert.Equal(t, http.StatusOK, healthz(t, address))

	target := hostile.Target{Addr: address, TLS: &tls.Config{MinVersion: tls.VersionTLS13}}
	var attacks []hostile.Attack
	for _, a := range hostile.HTTP1("/healthz") {
		a.Secure = false
		attacks = append(attacks, a)
	}
	left, err := target.LeftOpen(t.Context(), attacks, 2*healthTimeout+time.Minute, func([]byte) bool { return true })
	require.NoError(t, err)
	assert.Empty(t, left)
	for _, path := range []string{"/v1/cluster", "/healthz/../v1/cluster", "//healthz", "/readyz%2f..%2fv1%2fcluster", "/openapi.json"} {
		conn, err := target.Send(t.Context(), hostile.Attack{Do: func(c net.Conn) {
			_, _ = fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path)
		}})
		require.NoError(t, err)
		said, err := hostile.Ended(conn, time.Minute)
		require.NoError(t, err)
		assert.True(t, strings.HasPrefix(string(said), "HTTP/1.1 404"), "%s: %s", path, said)
		require.NoError(t, conn.Close())
	}
	assert.Equal(t, http.StatusOK, healthz(t, address))
}

func healthz(t *testing.T, address string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/healthz", nil)
	require.NoError(t, err)
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(r)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

func TestHealthStatus_NamesMissingChecks(t *testing.T) {
	h := newHealth()
	is := func(want string, wantReady bool) {
		t.Helper()
		ready, text := h.status(t.Context())
		assert.Equal(t, want, text)
		assert.Equal(t, wantReady, ready, text)
	}
	is("apps: starting; identity: starting; policy: starting; tunnel: starting", false)
	for _, check := range []string{"identity", "tunnel", "apps", "policy"} {
		h.set(check, stateOK)
	}
	is("ready", true)
	h.remark("tunnels", func() string { return "tunnels: 1 of 2 up" })
	is("ready; tunnels: 1 of 2 up", true)
	h.ask("tunnel", func() string { return "waiting: no route" })
	is("tunnel: waiting: no route; tunnels: 1 of 2 up", false)
}

// TestHealthStatus_ControlPlaneUnreachable is for the owner of the cluster, who looks at /readyz.
func TestHealthStatus_ControlPlaneUnreachable(t *testing.T) {
	h := newHealth()
	for _, check := range []string{"identity", "tunnel", "apps", "policy"} {
		h.set(check, stateOK)
	}
	first := time.Date(2026, 7, 4, 20, 27, 12, 0, time.UTC)
	h.answered(first, errors.New("no route; fix: open the port"))
	h.answered(first.Add(time.Hour), errors.New("refused"))
	ready, text := h.status(t.Context())
	assert.True(t, ready, "Runners may reach the agent all the same")
	assert.Equal(t, "ready; control plane: no answer since 2026-07-04T20:27:12Z: refused", text)
	h.set("tunnel", "waiting: no route")
	_, text = h.status(t.Context())
	assert.Equal(t, "tunnel: waiting: no route; control plane: no answer since 2026-07-04T20:27:12Z: refused", text)
	h.set("tunnel", stateOK)
	h.answered(first.Add(2*time.Hour), nil)
	_, text = h.status(t.Context())
	assert.Equal(t, "ready", text)
}
