package broker

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

func TestBroker_OwnPorts(t *testing.T) {
	root := t.TempDir()
	seen := map[int]string{}
	for _, name := range []string{"one", "two", "three"} {
		s, err := newState(t.Context(), root, root+"/"+name)
		require.NoError(t, err)
		for _, port := range s.ports() {
			assert.Empty(t, seen[port], "port %d, which %s has, too", port, name)
			seen[port] = name
		}
	}
}

// TestBroker_Life takes a real broker through what tests need it for: it is killed, held, stopped
// and removed, and keeps its port and its durable queues until then.
func TestBroker_Life(t *testing.T) {
	suite.Release(t, "the life of a broker")
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	b, err := Up(ctx, Options{Name: "a"})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, b.Down(context.WithoutCancel(ctx))) })
	declare := func(passive bool) error {
		conn, err := amqp.DialTLS(b.URL(UserControlPlane), b.TLSConfig())
		require.NoError(t, err)
		defer func() { _ = conn.CloseDeadline(time.Now().Add(5 * time.Second)) }()
		ch, err := conn.Channel()
		require.NoError(t, err)
		queue := ch.QueueDeclare
		if passive {
			queue = ch.QueueDeclarePassive
		}
		_, err = queue("pipeops.kept", true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
		return err
	}
	_, err = amqp.DialTLS("amqps://guest:guest@"+b.address()+"/", b.TLSConfig())
	require.Error(t, err, "the default user")
	require.NoError(t, declare(false))

	require.NoError(t, b.Kill())
	require.False(t, b.Running())
	require.NoError(t, b.Start(ctx))
	require.NoError(t, declare(true), "after its death")

	require.NoError(t, b.Hold())
	waiting, end := context.WithTimeout(ctx, time.Second)
	defer end()
	require.True(t, b.Running())
	require.Error(t, b.accepts(waiting), "held, it answers nobody")
	require.NoError(t, b.Resume())
	require.NoError(t, b.accepts(ctx))

	port := b.Port()
	require.NoError(t, b.Stop(ctx))
	b, err = Up(ctx, Options{Name: "a"})
	require.NoError(t, err)
	require.Equal(t, port, b.Port())
	require.NoError(t, declare(true), "after a stop")

	require.NoError(t, b.Down(ctx))
	require.Empty(t, b.processes(""))
	require.NoDirExists(t, b.dir)
}
