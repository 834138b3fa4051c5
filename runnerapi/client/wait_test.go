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
)

// The client does not retry a poll, and the wait goes on.
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
	config := runnertest.Start(t, backend).ClientConfig()
	config.Patience = time.Nanosecond
	c, err := client.New(config)
	require.NoError(t, err)
	defer c.Close()

	_, err = c.Builds().Wait(ctxFor(t), web, func(runnerapi.Build) {})
	require.True(t, problem.Is(err, runnerapi.CodeNotFound), "an error other than an outage ends the wait: %v", err)
	assert.Equal(t, 3, looks)
}
