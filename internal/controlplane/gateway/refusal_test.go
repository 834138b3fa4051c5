package gateway_test

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// TestGateway_BadRequestProblem covers requests that net/http refuses, over TLS and without.
func TestGateway_BadRequestProblem(t *testing.T) {
	w := newWorld(t, http.NotFoundHandler())
	secure, err := (&tls.Dialer{Config: &tls.Config{RootCAs: w.roots, ServerName: host, MinVersion: tls.VersionTLS12}}).
		DialContext(t.Context(), "tcp", w.secure.String())
	require.NoError(t, err)
	plain, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.plain.String())
	require.NoError(t, err)
	for _, conn := range []net.Conn{secure, plain} {
		_, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: "+host+"\r\nHost: "+host+"\r\n\r\n")
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
		assert.Equal(t, problem.ContentType, resp.Header.Get("Content-Type"))
		require.NoError(t, resp.Body.Close())
		require.NoError(t, conn.Close())
	}
}
