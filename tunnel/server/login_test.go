package server_test

import (
	"context"
	"crypto/tls"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/internal/tunneltest"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
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
	// For other errors see TestTunnel_ErrorsHaveFix.
	var e *tunnel.Error
	require.ErrorAs(t, probe(t, p, p.addr, p.ca.AgentFor("a1", -time.Minute)), &e)
	assert.Contains(t, e.Action, "clock")
	require.ErrorAs(t, probe(t, p, "127.0.0.1:1", p.ca.Agent("a1")), &e)
	assert.Contains(t, e.Action, "firewall")
}

// A clone logs in from another cluster with an agent's certificate and the name of its replica:
// the replica keeps its connection.
func TestAdmit_RefusesClone(t *testing.T) {
	p := newPlane(t, func(c *server.Config) {
		c.Admit = func(_ context.Context, id string, l server.Login) error {
			assert.Equal(t, []string{"a1", "pod-1", "127.0.0.1"}, []string{id, l.Instance, l.Address})
			switch l.Cluster {
			case "own":
				return nil
			case "other":
				return &server.RefusalError{Reason: "this is a copy"}
			}
			return errors.New("the database is away")
		}
	})
	from := func(cluster string) func(*tunnel.Config) {
		return func(c *tunnel.Config) { c.Instance, c.Cluster = "pod-1", func() string { return cluster } }
	}
	own := p.agent("a1", from("own"))
	changed := own.Changed()
	other := p.bareAgent("a1", from("other"))
	other.waitFor(t, tunnel.Refused)
	assert.Contains(t, other.Status().LastError, "this is a copy")
	require.True(t, tunnel.IsFinal(other.stop()))
	passing := p.bareAgent("a1", from("odd words\n"))
	passing.waitFor(t, tunnel.Waiting)
	assert.Contains(t, passing.Status().LastError, "cannot check the agent at present")
	require.NoError(t, passing.stop())
	select {
	case <-changed:
		t.Fatal("the replica was disturbed")
	default:
	}
	assert.Equal(t, "up a1", p.told())
}
