package client_test

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
)

// Calls an agent that is away.
func TestClient_ReportsSlowCall(t *testing.T) {
	t.Parallel()
	for call, do := range map[string]func(context.Context, *client.Client) error{
		"list-namespace-apps": func(ctx context.Context, c *client.Client) error {
			_, err := c.Apps().List(ctx, "production")
			return err
		},
		"exec-app": func(ctx context.Context, c *client.Client) error {
			_, err := c.Apps().Exec(ctx, web, runnerapi.ExecOptions{Command: []string{"cat"}}, runnerapi.ExecStreams{})
			return err
		},
		"port-forward-app": func(ctx context.Context, c *client.Client) error {
			_, err := c.Apps().PortForward(ctx, web, runnerapi.PortForwardOptions{Port: 7})
			return err
		},
		"get-build": func(ctx context.Context, c *client.Client) error { // a read that waits
			_, err := c.Builds().Wait(ctx, web, func(runnerapi.Build) {})
			return err
		},
	} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			toldOfNobody(t, call, do)
		})
	}
}

func toldOfNobody(t *testing.T, call string, do func(context.Context, *client.Client) error) {
	ctx, cancel := context.WithCancel(ctxFor(t))
	defer cancel()
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	var told []client.Slow
	config := runnertest.Start(t, runnertest.NewBackend()).ClientConfig()
	config.EdgeAddresses = []string{ln.Addr().String()}
	config.Slow = func(s client.Slow) {
		if told = append(told, s); len(told) == 2 {
			cancel()
		}
	}
	c, err := client.New(config)
	require.NoError(t, err)
	defer c.Close()

	require.ErrorIs(t, do(ctx, c), context.Canceled)
	require.Len(t, told, 3, "whoever was called has returned when the call has")
	assert.Equal(t, call, told[0].Call)
	require.ErrorContains(t, told[0].Last, "refused")
	assert.Greater(t, told[1].Took, told[0].Took)
	assert.False(t, told[1].Answered)
	assert.True(t, told[2].Answered)
}
