package server_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnertest"
)

func TestEvents_SurviveRestart(t *testing.T) {
	t.Parallel()
	agent := runnertest.Start(t, runnertest.NewBackend())
	c := agent.Client()
	_, err := c.Apps().Deploy(t.Context(), web, runnerapi.AppSpec{Image: "slow"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var got []runnerapi.AppEvent
	err = c.Apps().Events(ctx, web, runnerapi.EventOptions{}, func(e runnerapi.AppEvent) error {
		if got = append(got, e); len(got) == 1 {
			agent.Stop()
			agent.Start()
			agent.Backend.Finish(web)
		}
		return nil
	})
	require.NoError(t, err)
	require.Len(t, got, 2, "what was seen is not sent again: %+v", got)
	assert.Equal(t, runnerapi.PhaseProgressing, got[0].Status.Phase)
	assert.True(t, got[1].Settled)

	err = c.Apps().Events(ctx, runnerapi.Key{Namespace: "production", Name: "nowhere"}, runnerapi.EventOptions{}, nil)
	assert.Equal(t, runnerapi.CodeNotFound, codeOf(t, err))
}

func TestEvents_EndWithApp(t *testing.T) {
	agent := runnertest.Start(t, runnertest.NewBackend())
	c := agent.Client()
	_, err := c.Apps().Deploy(t.Context(), web, runnerapi.AppSpec{Image: "a"}, runnerapi.WriteOptions{})
	require.NoError(t, err)
	agent.Backend.Finish(web)
	var last runnerapi.AppEvent
	err = c.Apps().Events(t.Context(), web, runnerapi.EventOptions{Follow: true}, func(e runnerapi.AppEvent) error {
		if last = e; e.Settled {
			return c.Apps().Delete(t.Context(), web, runnerapi.WriteOptions{})
		}
		return nil
	})
	require.NoError(t, err)
	assert.Equal(t, runnerapi.EventRemoved, last.Type)
}
