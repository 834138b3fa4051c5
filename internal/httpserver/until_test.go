package httpserver_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
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

// A request is answered whose handshake takes a part of the time to drain. One that never ends
// takes half of it. Clients of HTTP/2 are sent GOAWAY, and can send the request again elsewhere.
func TestRun_SlowHandshakes(t *testing.T) {
	certs := httptest.NewUnstartedServer(nil)
	certs.StartTLS()
	defer certs.Close()
	for name, shakes := range map[string]time.Duration{"after 3 s": 3 * time.Second, "after 9 s": 9 * time.Second, "never": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				defer func() { _ = near.Close() }()
				ln := &piped{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
				ln.conns <- far
				srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(handler), TLSConfig: certs.TLS.Clone()}
				ctx, cancel := context.WithCancel(t.Context())
				ended, began := make(chan error, 1), time.Now()
				go func() { ended <- httpserver.Run(ctx, srv, ln, httpserver.Stop{Drain: 20 * time.Second}) }()
				synctest.Wait() // the handshake has begun
				cancel()
				if shakes > 0 {
					time.Sleep(shakes)
					conn := tls.Client(near, &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true})
					_, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 4\r\n\r\ntext")
					require.NoError(t, err)
					resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
					require.NoError(t, err)
					assert.Equal(t, http.StatusOK, resp.StatusCode)
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
				near, far := net.Pipe()
				defer func() { _ = near.Close() }()
				ln := &piped{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
				ln.conns <- far
				ctx, cancel := context.WithCancel(t.Context())
				requests := 0
				srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(handler), ConnState: func(_ net.Conn, to http.ConnState) {
					if to != http.StateActive {
						return
					}
					if requests++; requests > before { // the header was read, and the handler has not begun
						cancel()
						time.Sleep(3 * time.Second)
					}
				}}
				ended := make(chan error, 1)
				go func() { ended <- httpserver.Run(ctx, srv, ln, httpserver.Stop{Drain: 20 * time.Second}) }()
				answers := bufio.NewReader(near)
				for range before + 1 {
					_, err := io.WriteString(near, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\ntext")
					require.NoError(t, err)
					resp, err := http.ReadResponse(answers, nil)
					require.NoError(t, err)
					assert.Equal(t, http.StatusOK, resp.StatusCode)
				}
				require.NoError(t, near.Close())
				require.NoError(t, <-ended)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer func() { _ = near.Close() }()
		ln := &piped{conns: make(chan net.Conn, 1), closed: make(chan struct{})}
		ln.conns <- far
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(handler)}
		go func() { ended <- httpserver.Run(ctx, srv, ln, httpserver.Stop{Drain: 20 * time.Second}) }()
		synctest.Wait()
		cancel()
		time.Sleep(3 * time.Second)
		_, err := io.WriteString(near, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\ntext")
		require.NoError(t, err)
		resp, err := http.ReadResponse(bufio.NewReader(near), nil)
		require.NoError(t, err)
		assert.True(t, resp.Close)
		require.NoError(t, near.Close())
		require.NoError(t, <-ended)
	})
}

// piped is a listener of the connections that it is given.
type piped struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// Accept implements net.Listener.
func (p *piped) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p *piped) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// Addr implements net.Listener.
func (*piped) Addr() net.Addr { return &net.TCPAddr{} }
