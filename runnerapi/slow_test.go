package runnerapi_test

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnerapitest"
)

// TestASlowCallIsToldWithWhyTheLastTryFailed calls an agent that is not there.
func TestASlowCallIsToldWithWhyTheLastTryFailed(t *testing.T) {
	ctx, cancel := context.WithCancel(ctxFor(t))
	defer cancel()
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	var told []runnerapi.Slow
	config := runnerapitest.Start(t, runnerapitest.NewBackend()).ClientConfig()
	config.EdgeAddresses = []string{ln.Addr().String()}
	config.Slow = func(s runnerapi.Slow) {
		if told = append(told, s); len(told) == 2 {
			cancel()
		}
	}
	c, err := runnerapi.NewClient(config)
	require.NoError(t, err)
	defer c.Close()

	_, err = c.List(ctx, "production")
	require.ErrorIs(t, err, context.Canceled)
	require.Len(t, told, 3, "whoever was called has returned when the call has")
	assert.Equal(t, "list-namespace-apps", told[0].Call)
	require.ErrorContains(t, told[0].Last, "refused")
	assert.Greater(t, told[1].Took, told[0].Took)
	assert.False(t, told[1].Answered)
	assert.True(t, told[2].Answered)
}
