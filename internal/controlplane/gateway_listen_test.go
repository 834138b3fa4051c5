package controlplane

import (
	"context"
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestListenHTTPS_UDPPort: another port is taken if its number is in use for UDP. A port that the
// operator has chosen is not changed.
func TestListenHTTPS_UDPPort(t *testing.T) {
	var tried []string
	taken := func(ctx context.Context, address string) (net.PacketConn, error) {
		if tried = append(tried, address); len(tried) < 3 {
			return nil, &net.OpError{Op: "listen", Net: "udp", Err: syscall.EADDRINUSE}
		}
		return listenUDP(ctx, address)
	}
	ln, udp, err := listenHTTPS(t.Context(), "127.0.0.1:0", true, taken)
	require.NoError(t, err)
	assert.Len(t, tried, 3)
	assert.Equal(t, ln.Addr().String(), udp.LocalAddr().String())
	require.NoError(t, ln.Close())
	require.NoError(t, udp.Close())

	const anyPort, chosen = "127.0.0.1:0", "127.83.4.9:8443"
	for at, times := range map[string]int{anyPort: anyPortAttempts, chosen: 1} {
		tried = nil
		_, _, err = listenHTTPS(t.Context(), at, true, func(_ context.Context, address string) (net.PacketConn, error) {
			tried = append(tried, address)
			return nil, syscall.EADDRINUSE
		})
		require.ErrorContains(t, err, "--gateway-http3=false")
		assert.Len(t, tried, times)
	}
}
