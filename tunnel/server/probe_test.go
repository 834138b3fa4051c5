package server_test

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/tunneltest"
)

func probe(t *testing.T, p *plane, address string, certificate *tls.Config) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	way, err := tunnel.Probe(ctx, tunnel.Config{
		ServerAddress: address, ServerName: tunneltest.ServerName, AgentID: "a1", Log: testLog(),
		TLS: func(context.Context) (*tls.Config, error) { return certificate, nil },
	})
	if err == nil {
		assert.Equal(t, tunnel.TCP, way)
	}
	return err
}

func TestProbe_KeepsTunnel(t *testing.T) {
	p := newPlane(t)
	a := p.agent("a1")
	before := p.told()
	require.NoError(t, probe(t, p, p.addr, p.ca.Agent("a1")))
	await.Until(t, "the probe's connection is gone", func() bool { return p.Stats().Sessions == 1 })
	assert.Equal(t, tunnel.Connected, a.Status().Phase)
	assert.Equal(t, before, p.told(), "nobody is told of a probe")
	mustAsk(t, p.client("a1", http2), "still there")
}

func TestProbe_ReportsErrors(t *testing.T) {
	p := newPlane(t)
	require.NoError(t, probe(t, p, p.addr, &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: p.ca.Pool()}),
		"without a certificate it is the server that is looked at")
	stranger := tunneltest.NewCA(t).Agent("a1")
	stranger.RootCAs = p.ca.Pool()
	for name, c := range map[string]struct {
		address     string
		certificate *tls.Config
		words       string
	}{
		"expired certificate": {p.addr, p.ca.AgentFor("a1", -time.Minute), "clock"},
		"foreign certificate": {p.addr, stranger, "another control plane"},
		"foreign server":      {p.addr, tunneltest.NewCA(t).Agent("a1"), "address and CA"},
		"nobody there":        {"127.0.0.1:1", p.ca.Agent("a1"), "firewall"},
	} {
		t.Run(name, func(t *testing.T) {
			var e *tunnel.Error
			require.ErrorAs(t, probe(t, p, c.address, c.certificate), &e)
			assert.Contains(t, e.Action, c.words)
		})
	}
}
