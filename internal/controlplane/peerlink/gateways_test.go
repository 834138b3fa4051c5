package peerlink

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
)

func TestPeerLink_GatewayIsPublicOnly(t *testing.T) {
	c := newCA(t)
	link := func(seed byte) *Gateways {
		g, err := NewGateways(bytes.Repeat([]byte{seed}, 32), domain, time.Now)
		require.NoError(t, err)
		return g
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	peer := link(1)
	var echoing sync.WaitGroup
	echo := func(_ context.Context, _ string, conn net.Conn) error {
		echoing.Go(func() {
			_, _ = io.Copy(conn, conn)
			_ = conn.Close()
		})
		return nil
	}
	s := NewServer(ServerConfig{
		TrustDomain: domain, TLS: trusting(c, peerCert(c, "b")), GatewayTLS: func() (*tls.Config, error) { return peer.ForPeer("b") },
		Handover: echo, Public: echo, Log: zerolog.Nop(),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, ln) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, await.Receive(t, done, "the end of the server"))
		echoing.Wait()
	})
	gateway := func(seed byte) *Client {
		client := NewClient(ClientConfig{TrustDomain: domain, TLS: link(seed).ForGateway})
		t.Cleanup(client.Close)
		return client
	}
	address := ln.Addr().String()

	conn, err := gateway(1).DialPublic(t.Context(), "b", address, "agent1")
	require.NoError(t, err)
	_, err = conn.Write([]byte("hello"))
	require.NoError(t, err)
	text := make([]byte, 5)
	_, err = io.ReadFull(conn, text)
	require.NoError(t, err)
	require.Equal(t, "hello", string(text))
	require.NoError(t, conn.Close())

	_, far := runner(t)
	require.Error(t, gateway(1).Handover(t.Context(), "b", address, "agent1", far), "the Runner API")
	_, err = gateway(1).Replica(t.Context(), "b", address)
	require.Error(t, err, "a control plane's report")
	_, err = gateway(2).DialPublic(t.Context(), "b", address, "agent1")
	require.Error(t, err, "another key")
	_, err = gateway(1).DialPublic(t.Context(), "a", address, "agent1")
	require.Error(t, err, "another control plane")
	_, err = newClient(t, c, peerCert(c, "a")).DialPublic(t.Context(), "b", address, "agent1")
	require.NoError(t, err, "control planes have their own certificates")
}
