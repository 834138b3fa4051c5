package waves_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/waves"
)

func agents(names ...string) (list []announce.Agent) {
	for _, name := range names {
		list = append(list, announce.Agent{ID: name, Name: name, Labels: map[string]string{"env": "prod"}})
	}
	return list
}

func TestSelect_ByLabels(t *testing.T) {
	all := agents("c", "a", "b")
	all[2].State = announce.StateRevoked
	all = append(all, announce.Agent{Name: "d", Labels: map[string]string{"env": "test"}})
	found, err := waves.Select(all, "env=prod")
	require.NoError(t, err)
	require.Len(t, found, 2)
	assert.Equal(t, "a", found[0].Name)
	assert.Equal(t, "c", found[1].Name)
	_, err = waves.Select(all, "==")
	assert.Error(t, err)
}

func TestSize_NumberOrPercent(t *testing.T) {
	for wave, want := range map[string]int{"5": 5, "10%": 3, "100%": 25, "1%": 1} {
		size, err := waves.Size(wave, 25)
		require.NoError(t, err, wave)
		assert.Equal(t, want, size, wave)
	}
	for _, wave := range []string{"", "0", "-1", "101%", "many", "%"} {
		_, err := waves.Size(wave, 25)
		assert.ErrorContains(t, err, "is not a number of agents", wave)
	}
}

func TestRun_StopsAfterFailedWave(t *testing.T) {
	broken := errors.New("broken")
	var calls atomic.Int64
	outcomes := waves.Run(t.Context(), agents("a", "b", "c", "d", "e"), 2, func(_ context.Context, a announce.Agent) error {
		calls.Add(1)
		if a.Name == "c" {
			return broken
		}
		return nil
	})
	require.Len(t, outcomes, 5)
	assert.EqualValues(t, 4, calls.Load(), "the wave of the failure continues")
	for i, o := range outcomes {
		assert.Equal(t, i == 4, o.Skipped, o.Agent.Name)
		assert.Equal(t, i == 2, errors.Is(o.Err, broken), o.Agent.Name)
	}
}

func TestRun_StopsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	outcomes := waves.Run(ctx, agents("a", "b"), 1, func(context.Context, announce.Agent) error {
		cancel()
		return nil
	})
	assert.False(t, outcomes[0].Skipped)
	assert.True(t, outcomes[1].Skipped)
}
