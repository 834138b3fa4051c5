package server_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/httpserver"
	"github.com/pipeops/pipeops-vm-agent/internal/wrapconn"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

func takesPublic(c *tunnel.Config) { c.TakePublic = true }

// named answers every request with its name.
type named string

func (n named) ServeHTTP(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, string(n)) }

type dialFunc func(ctx context.Context, agentID string) (net.Conn, error)

// via returns what an agent answers over a new connection.
func via(t testing.TB, dial dialFunc, id string) (string, error) {
	t.Helper()
	transport := &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, id) },
		DisableKeepAlives: true,
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://agent/", http.NoBody)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: transport, Timeout: patience}).Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// What the public sends arrives only at the agent's handler of public traffic, and what Runners
// send only at the Runner API.
func TestPublicStreams_Separate(t *testing.T) {
	p := newPlane(t)
	a := p.bareAgent("a1", takesPublic)
	serve(t, a.Listener(), named("runner API"))
	serve(t, a.Public(), named("public"))
	a.waitFor(t, tunnel.Connected)
	for range 20 {
		for want, dial := range map[string]dialFunc{"public": p.DialPublic, "runner API": p.Dial} {
			if got, err := via(t, dial, "a1"); err != nil || got != want {
				t.Fatalf("%q, %v; want %q", got, err, want)
			}
		}
	}
}

func TestPublicStreams_NotTaken(t *testing.T) {
	p := newPlane(t)
	a := p.bareAgent("a1")
	serve(t, a.Listener(), named("runner API"))
	serve(t, a.Public(), named("public"))
	a.waitFor(t, tunnel.Connected)
	got, err := via(t, p.DialPublic, "a1")
	require.Error(t, err, "it answered %q", got)
	if got, err := via(t, p.Dial, "a1"); err != nil || got != "runner API" {
		t.Fatalf("Runners: %q, %v", got, err)
	}
	_, err = p.DialPublic(t.Context(), "a2")
	require.ErrorIs(t, err, server.ErrNotConnected, "an agent without a tunnel")
}

// Runners connect when the public has all its streams.
func TestPublicStreams_Limited(t *testing.T) {
	p := newPlane(t, func(c *server.Config) { c.Limits.Public = 16 })
	a := p.bareAgent("a1", takesPublic)
	serve(t, a.Listener(), named("runner API"))
	a.waitFor(t, tunnel.Connected)
	var open []net.Conn
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for {
		conn, err := p.DialPublic(t.Context(), "a1")
		if err != nil {
			require.ErrorIs(t, err, server.ErrBusy)
			require.NotEmpty(t, open)
			break
		}
		open = append(open, conn)
		require.LessOrEqual(t, len(open), 16, "there is no end")
	}
	if got, err := via(t, p.Dial, "a1"); err != nil || got != "runner API" {
		t.Fatalf("Runners: %q, %v", got, err)
	}
}

// They go to all replicas, and to none that drains.
func TestPublicStreams_Replicas(t *testing.T) {
	p := newPlane(t)
	replicas := map[string]*agent{}
	for _, name := range []string{"one", "two"} {
		a := p.bareAgent("a1", takesPublic, func(c *tunnel.Config) { c.Instance = name })
		serve(t, a.Public(), named(name))
		a.waitFor(t, tunnel.Connected)
		replicas[name] = a
	}
	seen := map[string]bool{}
	for range 4 {
		got, err := via(t, p.DialPublic, "a1")
		require.NoError(t, err)
		seen[got] = true
	}
	require.Len(t, seen, 2, "answers came from")
	require.NoError(t, replicas["one"].Drain(t.Context()))
	for range 4 {
		if got, err := via(t, p.DialPublic, "a1"); err != nil || got != "two" {
			t.Fatalf("%q, %v", got, err)
		}
	}
}

// A direction that ends does not end the other.
func TestPublicStreams_HalfClose(t *testing.T) {
	p := newPlane(t)
	a := p.bareAgent("a1", takesPublic)
	a.waitFor(t, tunnel.Connected)
	far := await.Background(t, "the agent's end", func(context.Context) error {
		conn, err := a.Public().Accept()
		if err != nil {
			return err
		}
		sent, err := io.ReadAll(conn)
		_, failed := conn.Write(append([]byte("all of "), sent...))
		return errors.Join(err, failed, conn.Close())
	})
	conn, err := p.DialPublic(t.Context(), "a1")
	require.NoError(t, err)
	_, err = io.WriteString(conn, "it")
	require.NoError(t, errors.Join(err, wrapconn.Conn{Conn: conn}.CloseWrite()))
	got, err := io.ReadAll(conn)
	require.NoError(t, err)
	require.Equal(t, "all of it", string(got))
	require.NoError(t, conn.Close())
	far()
}

// A server that stops lets requests finish that are in progress, and takes no more. Streams that
// stay open between requests end with the next answer.
func TestPublicStreams_ServerStops(t *testing.T) {
	p := newPlane(t)
	a := p.bareAgent("a1", takesPublic)
	begun, finish := make(chan struct{}), make(chan struct{})
	srv := &http.Server{ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			close(begun)
			<-finish
		}
	})}
	var leaving httpserver.Leaving
	leaving.Watch(srv)
	go func() { _ = srv.Serve(a.Public()) }()
	t.Cleanup(func() { _ = srv.Close() })
	a.waitFor(t, tunnel.Connected)
	kept, err := p.DialPublic(t.Context(), "a1")
	require.NoError(t, err)
	answers := bufio.NewReader(kept)
	ask := func() *http.Response {
		_, err := io.WriteString(kept, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		require.NoError(t, err)
		resp, err := http.ReadResponse(answers, nil)
		require.NoError(t, err)
		return resp
	}
	require.False(t, ask().Close)
	conn, err := p.DialPublic(t.Context(), "a1")
	require.NoError(t, err)
	_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\ntext")
	require.NoError(t, err)
	await.Closed(t, begun, "the request")
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		p.stop()
	}()
	await.Until(t, "no more is taken", func() bool {
		_, err := p.DialPublic(t.Context(), "a1")
		return errors.Is(err, server.ErrNotConnected)
	})
	await.Until(t, "the agent ends streams", func() bool { return ask().Close })
	_ = kept.Close()
	close(finish)
	_, err = http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	await.Closed(t, stopped, "the server's end")
}

// Another control plane sends the whole connection.
func TestPublicStreams_Handover(t *testing.T) {
	p := newPlane(t)
	a := p.bareAgent("a1", takesPublic)
	serve(t, a.Public(), named("public"))
	a.waitFor(t, tunnel.Connected)
	got, err := via(t, func(ctx context.Context, id string) (net.Conn, error) {
		near, far := net.Pipe()
		if err := p.HandoverPublic(ctx, id, far); err != nil {
			return nil, err
		}
		return near, nil
	}, "a1")
	require.NoError(t, err)
	require.Equal(t, "public", got)
}
