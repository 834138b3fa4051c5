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
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/memnet"
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
	idle, shaking := dial(), dial()
	assert.False(t, post(t, idle, "").Close)
	await.Receive(t, begun, "the idle connection")
	cancel()
	await.Until(t, "the server asks clients to leave", func() bool {
		conn := dial()
		defer func() { _ = conn.Close() }()
		return post(t, conn, "").Close
	})
	assert.True(t, post(t, shaking, "").Close)
	assert.True(t, post(t, idle, "").Close)
	require.NoError(t, await.Receive(t, ended, "the server's end"), "it does not linger when all have left")
}

// A request is answered whose handshake takes a part of the time to drain. One that never ends
// takes half of it. Clients of HTTP/2 are sent GOAWAY, and can send the request again elsewhere.
func TestRun_SlowHandshakes(t *testing.T) {
	certs := httptest.NewUnstartedServer(nil)
	certs.StartTLS()
	defer certs.Close()
	for name, shakes := range map[string]time.Duration{"after 3 s": 3 * time.Second, "after 9 s": 9 * time.Second, "never": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				near, ended := run(ctx, t, &http.Server{TLSConfig: certs.TLS.Clone()})
				began := time.Now()
				synctest.Wait() // the handshake has begun
				cancel()
				if shakes > 0 {
					time.Sleep(shakes)
					conn := tls.Client(near, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true})
					assert.Equal(t, http.StatusOK, post(t, conn, "Connection: close\r\n").StatusCode)
					require.NoError(t, near.Close())
				}
				require.NoError(t, <-ended)
				assert.LessOrEqual(t, time.Since(began), 10*time.Second)
			})
		})
	}
}

// A request is answered that comes on a connection without TLS after the server was asked to stop,
// and one of which the server has read the header, on a new connection and on one that was used.
func TestRun_AnswersWhatItHasRead(t *testing.T) {
	for name, before := range map[string]int{"new": 0, "used": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				requests := 0
				near, ended := run(ctx, t, &http.Server{ConnState: func(_ net.Conn, to http.ConnState) {
					if to != http.StateActive {
						return
					}
					if requests++; requests > before { // the header was read, and the handler has not begun
						cancel()
						time.Sleep(3 * time.Second)
					}
				}})
				for range before + 1 {
					assert.Equal(t, http.StatusOK, post(t, near, "").StatusCode)
				}
				require.NoError(t, near.Close())
				require.NoError(t, <-ended)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		near, ended := run(ctx, t, &http.Server{})
		synctest.Wait()
		cancel()
		time.Sleep(3 * time.Second)
		assert.True(t, post(t, near, "").Close)
		require.NoError(t, near.Close())
		require.NoError(t, <-ended)
	})
}

// post sends a request, and returns the answer's head.
func post(t *testing.T, conn net.Conn, header string) *http.Response {
	t.Helper()
	_, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n"+header+"\r\ntext")
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	return resp
}

// run runs a server in a bubble with a connection to it, until ctx ends.
func run(ctx context.Context, t *testing.T, srv *http.Server) (near net.Conn, ended <-chan error) {
	t.Helper()
	ln, done := memnet.New(), make(chan error, 1)
	srv.ReadHeaderTimeout, srv.Handler = time.Minute, http.HandlerFunc(handler)
	go func() { done <- httpserver.Run(ctx, srv, ln, httpserver.Stop{Drain: 20 * time.Second}) }()
	near, err := ln.Dial(ctx, "", "")
	require.NoError(t, err)
	t.Cleanup(func() { _ = near.Close() })
	return near, done
}
