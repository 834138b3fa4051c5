package server_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/tunnel"
	"github.com/pipeops/pipeops-vm-agent/tunnel/server"
)

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
