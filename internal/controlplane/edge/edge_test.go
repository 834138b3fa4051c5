package edge

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/clienthello"
	"github.com/pipeops/pipeops-vm-agent/test/selfsigned"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

const domain = "agents.test"

func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	pair, pool, err := selfsigned.Pair("a1." + domain)
	require.NoError(t, err)
	return pair, pool
}

// serve runs an edge and answers its address.
func serve(t *testing.T, cfg Config) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	cfg.Domain, cfg.Log = domain, zerolog.Nop()
	await.Background(t, "the edge", func(ctx context.Context) error { return New(cfg).Serve(ctx, ln) })
	return ln.Addr().String()
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestEdge_PassesTLSThrough(t *testing.T) {
	cert, pool := certificate(t)
	agent := make(chan net.Conn, 1)
	addr := serve(t, Config{Handover: func(_ context.Context, id string, conn net.Conn) error {
		assert.Equal(t, "a1", id)
		agent <- conn
		return nil
	}})
	served := make(chan error, 1)
	go func() {
		var conn net.Conn
		select {
		case conn = <-agent:
		case <-t.Context().Done():
			return
		}
		secure := tls.Server(conn, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}})
		_, err := io.Copy(secure, secure)
		served <- errors.Join(err, secure.Close())
	}()
	client := tls.Client(dial(t, addr), &tls.Config{MinVersion: tls.VersionTLS13, ServerName: "A1." + domain, RootCAs: pool})
	_, err := client.Write([]byte("hello"))
	require.NoError(t, err)
	require.NoError(t, client.CloseWrite())
	echo, err := io.ReadAll(client)
	require.NoError(t, err)
	assert.Equal(t, "hello", string(echo))
	require.NoError(t, await.Receive(t, served, "the end of the agent's side"))
}

func TestEdge_Refusals(t *testing.T) {
	addr := serve(t, Config{Handover: func(_ context.Context, id string, _ net.Conn) error {
		if id == "busy" {
			return server.ErrBusy
		}
		return server.ErrNotConnected
	}})
	for name, want := range map[string]string{
		"offline." + domain:         "unrecognized name",
		"busy." + domain:            "internal error",
		"kubernetes.busy." + domain: "internal error", // the same agent
		"kubernetes." + domain:      "unrecognized name",
		"a1.elsewhere.test":         "unrecognized name",
		domain:                      "unrecognized name",
		"":                          "unrecognized name", // a client by IP address: kubectl -s https://192.0.2.1
	} {
		err := tls.Client(dial(t, addr), &tls.Config{MinVersion: tls.VersionTLS13, ServerName: name, InsecureSkipVerify: true}).HandshakeContext(t.Context())
		require.ErrorContains(t, err, want, name)
	}
}

func TestEdge_ClosesPlaintext(t *testing.T) {
	addr := serve(t, Config{HelloTimeout: 50 * time.Millisecond})
	for name, text := range map[string]string{"http": "GET / HTTP/1.1\r\n\r\n", "silence": "", "half": "\x16\x03\x01"} {
		conn := dial(t, addr)
		_, err := conn.Write([]byte(text))
		require.NoError(t, err)
		_, err = io.ReadAll(conn)
		var timeout net.Error
		assert.False(t, errors.As(err, &timeout) && timeout.Timeout(), "%s: the edge must close it", name)
	}
}

func TestEdge_EvictsSilentConnections(t *testing.T) {
	addr := serve(t, Config{Hellos: 2, HelloTimeout: time.Minute, Handover: func(context.Context, string, net.Conn) error { return server.ErrNotConnected }})
	first := dial(t, addr)
	for range 2 {
		_, err := dial(t, addr).Write([]byte{0x16})
		require.NoError(t, err)
	}
	_, err := first.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "it waited longest")
	err = tls.Client(dial(t, addr), &tls.Config{MinVersion: tls.VersionTLS13, ServerName: "a1." + domain}).HandshakeContext(t.Context())
	require.ErrorContains(t, err, "unrecognized name", "whoever speaks is answered")
}

func TestEdge_SlowAgentBlocksNobody(t *testing.T) {
	waiting := make(chan struct{}, 2)
	addr := serve(t, Config{Pending: 10, PendingPerAgent: 2, HandoverTimeout: time.Minute, Handover: func(ctx context.Context, id string, _ net.Conn) error {
		if id == "a1" {
			return server.ErrNotConnected
		}
		waiting <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}})
	ask := func(name string) (net.Conn, error) {
		raw := dial(t, addr)
		_, err := raw.Write(clienthello.Of(t, name+"."+domain))
		return raw, err
	}
	for range 2 {
		_, err := ask("hung")
		require.NoError(t, err)
		await.Receive(t, waiting, "the handover")
	}
	third, err := ask("hung")
	require.NoError(t, err)
	said, err := io.ReadAll(third)
	require.NoError(t, err)
	assert.Equal(t, []byte{21, 3, 3, 0, 2, 2, alertInternal}, said)
	other, err := ask("a1")
	require.NoError(t, err)
	said, err = io.ReadAll(other)
	require.NoError(t, err)
	assert.Equal(t, byte(alertUnrecognizedName), said[6])
}
