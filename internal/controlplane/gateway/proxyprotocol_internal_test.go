package gateway

import (
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
)

func TestProxyProtocol_HeaderTimeout(t *testing.T) {
	for _, first := range []string{"", "P", "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\x01"} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer func() { _ = near.Close() }()
			go func() { _, _ = near.Write([]byte(first)) }()
			began := time.Now()
			_, err := readProxyHeader(far, proxyHeaderTimeout)
			require.Error(t, err)
			assert.Equal(t, proxyHeaderTimeout, time.Since(began))
			_ = far.Close()
		})
	}
}

func TestProxyProtocol_Close(t *testing.T) {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := ListenProxy(ln, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, zerolog.Nop())
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", ln.Addr().String())
	require.NoError(t, err)
	await.Until(t, "the connection is there", func() bool { return l.room.Len() == 1 })
	require.NoError(t, l.Close())
	_, err = l.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = conn.Read(make([]byte, 1))
	require.Error(t, err)
	assert.Zero(t, l.room.Len())
}
