package controlplane

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestWhoHoldsTheCAIsNotSentIt counts certificates: each one too many is a signature that ten thousand agents verify
// when they come back at once.
func TestWhoHoldsTheCAIsNotSentIt(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	for listener, sent := range map[net.Addr]int{p.Addrs().Tunnel: 1, p.Addrs().API: 2} {
		cfg := c.tlsConfig()
		cfg.ServerName = "localhost"
		conn, err := (&tls.Dialer{Config: cfg}).DialContext(t.Context(), "tcp", listener.String())
		require.NoError(t, err)
		assert.Len(t, conn.(*tls.Conn).ConnectionState().PeerCertificates, sent, listener)
		require.NoError(t, conn.Close())
	}
}

// TestTheTunnelsHandshakeIsTheOneThatVerifies has a connection in whose TLS an agent was verified, and looks for its
// certificate where it is asked for again: by the first call in the tunnel, say.
func TestTheTunnelsHandshakeIsTheOneThatVerifies(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	cfg := c.tlsConfig()
	leaf := *cfg.Certificates[0].Leaf
	leaf.Signature = nil // it cannot be verified again
	state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{&leaf}}
	_, err := p.peers.agentOfTunnel(state)
	require.Error(t, err, "it was not verified")
	state.VerifiedChains = append(state.VerifiedChains, []*x509.Certificate{&leaf, p.ca.Certificate()})
	id, err := p.peers.agentOfTunnel(state)
	require.NoError(t, err)
	assert.Equal(t, c.id.AgentID, id)
}
