package httpserver_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/test/await"
)

func TestUntil_FinishesCalls(t *testing.T) {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	begun, finish := make(chan struct{}), make(chan struct{})
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(begun)
		<-finish
		_, _ = io.WriteString(w, "done")
	})}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- httpserver.Until(ctx, srv, time.Minute, func() error { return srv.Serve(ln) })
	}()
	go func() {
		<-begun
		cancel()
		close(finish)
	}()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+ln.Addr().String(), nil)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, "done", string(body))
	require.NoError(t, <-ended)
}

func TestUntil_ReturnsServeError(t *testing.T) {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	srv := &http.Server{ReadHeaderTimeout: time.Minute}
	require.ErrorIs(t, httpserver.Until(t.Context(), srv, time.Minute, func() error { return srv.Serve(ln) }), net.ErrClosed)
}

// A request that comes after the server was asked to stop is answered, on an idle connection and on
// one whose handshake had begun.
func TestRun_ClientsLeave(t *testing.T) {
	certs := httptest.NewUnstartedServer(nil)
	certs.StartTLS()
	defer certs.Close()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	begun := wake.New()
	srv := &http.Server{
		ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(handler), TLSConfig: certs.TLS,
		ConnState: func(_ net.Conn, to http.ConnState) {
			if to == http.StateIdle {
				begun.Raise()
			}
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- httpserver.Run(ctx, srv, ln, httpserver.Stop{Linger: time.Minute, Drain: 2 * time.Minute})
	}()
	dial := func() *tls.Conn {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", ln.Addr().String())
		require.NoError(t, err)
		return tls.Client(conn, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true})
	}
	ask := func(conn *tls.Conn) *http.Response {
		_, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\ntext")
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		require.NoError(t, err)
		return resp
	}
	idle, shaking := dial(), dial()
	assert.False(t, ask(idle).Close)
	await.Receive(t, begun, "the idle connection")
	cancel()
	await.Until(t, "the server asks clients to leave", func() bool {
		conn := dial()
		defer func() { _ = conn.Close() }()
		return ask(conn).Close
	})
	assert.True(t, ask(shaking).Close)
	assert.True(t, ask(idle).Close)
	require.NoError(t, await.Receive(t, ended, "the server's end"), "it does not linger when all have left")
}
