package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
	"github.com/pipeops/pipeops-vm-agent/test/freeport"
)

// The client does not retry a poll, and the wait continues.
func TestWait_SurvivesOutage(t *testing.T) {
	t.Parallel()
	backend, looks := runnertest.NewBackend(), 0
	backend.Intercept = func(_ context.Context, call runnertest.Call) error {
		if call.Verb != "Builds.Get" {
			return nil
		}
		if looks++; looks < 3 {
			return problem.Errorf(problem.Unavailable, "call again", "the agent is shutting down")
		}
		return nil
	}
	c := runnertest.Start(t, backend).ClientWith(func(c *client.Config) { c.Patience = time.Nanosecond })
	_, err := c.Builds().Wait(ctxFor(t), web, func(runnerapi.Build) {})
	require.True(t, problem.Is(err, runnerapi.CodeNotFound), "an error other than an outage ends the wait: %v", err)
	assert.Equal(t, 3, looks)
}

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
	var told []client.Slow
	c := runnertest.Start(t, runnertest.NewBackend()).ClientWith(func(c *client.Config) {
		c.EdgeAddresses = []string{freeport.Address(t)}
		c.Slow = func(s client.Slow) {
			if told = append(told, s); len(told) == 2 {
				cancel()
			}
		}
	})
	require.ErrorIs(t, do(ctx, c), context.Canceled)
	require.Len(t, told, 3, "whoever was called has returned when the call has")
	assert.Equal(t, call, told[0].Call)
	require.ErrorContains(t, told[0].Last, "refused")
	assert.Greater(t, told[1].Took, told[0].Took)
	assert.False(t, told[1].Answered)
	assert.True(t, told[2].Answered)
}
