package controlplane

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/tunnel"
)

// TestTLS_SentCertificates counts certificates: each one too many is a signature that ten thousand
// agents verify when they come back at once.
func TestTLS_SentCertificates(t *testing.T) {
	p := start(t)
	cluster := p.registered("shop")
	for name, c := range map[string]struct {
		at        net.Addr
		protocols []string
		sent      int
	}{
		"an agent with its identity": {p.Addrs().Tunnel, []string{tunnel.ALPN}, 2},
		"a fingerprint alone":        {p.Addrs().Tunnel, []string{tunnel.ALPN, tunnel.SendCA}, 3},
		"the API":                    {p.Addrs().API, []string{"http/1.1"}, 3},
	} {
		cfg := cluster.tlsConfig()
		cfg.ServerName, cfg.NextProtos = "localhost", c.protocols
		conn, err := (&tls.Dialer{Config: cfg}).DialContext(t.Context(), "tcp", c.at.String())
		require.NoError(t, err, name)
		assert.Len(t, conn.(*tls.Conn).ConnectionState().PeerCertificates, c.sent, name)
		require.NoError(t, conn.Close())
	}
}

// TestAuthn_TrustsTunnelHandshake: the TLS of a connection has verified an agent's certificate. It
// is not verified again where it is needed later, by the first call in the tunnel for example.
func TestAuthn_TrustsTunnelHandshake(t *testing.T) {
	p := start(t)
	c := p.registered("shop")
	cfg := c.tlsConfig()
	leaf := *cfg.Certificates[0].Leaf
	leaf.Signature = nil // it cannot be verified again
	state := tls.ConnectionState{PeerCertificates: []*x509.Certificate{&leaf}}
	_, err := p.authn.AgentOfTunnel(state)
	require.Error(t, err, "it was not verified")
	state.VerifiedChains = append(state.VerifiedChains, []*x509.Certificate{&leaf, p.ca.Intermediates()[0]})
	id, err := p.authn.AgentOfTunnel(state)
	require.NoError(t, err)
	assert.Equal(t, c.id.AgentID, id)
}
