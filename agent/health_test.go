package agent

import (
	"context"
	"crypto/tls"
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

	"github.com/pipeops/pipeops-vm-agent/test/hostile"
)

// TestHealthPort_HostilePeers: one pod takes all that it may and sends slowly; the kubelet still
// gets its replies.
func TestHealthPort_HostilePeers(t *testing.T) {
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := free.Addr().String()
	require.NoError(t, free.Close())
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
