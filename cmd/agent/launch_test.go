package main

import (
	"context"
	"errors"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/agent/update"
	"github.com/pipeops/pipeops-vm-agent/test/releasetest"
)

func TestSelfUpdateNeedsAKey(t *testing.T) {
	_, err := launchRight(&config.Config{}, zerolog.Nop())
	require.NoError(t, err, "not turned on")
	_, err = launchRight(&config.Config{SelfUpdate: true}, zerolog.Nop())
	require.ErrorIs(t, err, errUsage)
	require.ErrorContains(t, err, "PIPEOPS_UPDATE_KEYS")
	_, err = launchRight(&config.Config{SelfUpdate: true, UpdateKeys: []string{releasetest.PublicKey}}, zerolog.Nop())
	require.NoError(t, err)
}

func TestAProgramOnTrialKeepsOutOfTheWay(t *testing.T) {
	t.Setenv("PIPEOPS_UPDATE_TRIAL", version)
	cfg := config.Config{SelfUpdate: true, StateDir: t.TempDir(), HealthAddress: "127.0.0.1:8080"}
	replica, err := launchRight(&cfg, zerolog.Nop())
	require.NoError(t, err)
	assert.Regexp(t, `-trial$`, replica)
	assert.Equal(t, "127.0.0.1:0", cfg.HealthAddress)
	assert.False(t, cfg.SelfUpdate, "it takes no offers")
	t.Setenv("PIPEOPS_UPDATE_TRIAL", "v9.9.9")
	_, err = launchRight(&cfg, zerolog.Nop())
	require.ErrorContains(t, err, "this program is "+version+", not v9.9.9")
}

func TestAnAgentThatIsToldToStopWhileItDrainsForAnotherStops(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	broken, anew := errors.New("it broke"), errors.New("started anew")
	again := func() error { return anew }
	require.ErrorIs(t, relaunch(ctx, update.ErrRelaunch, again), anew)
	require.ErrorIs(t, relaunch(ctx, broken, again), broken)
	require.NoError(t, relaunch(ctx, nil, again))
	stop()
	require.NoError(t, relaunch(ctx, update.ErrRelaunch, again))
}
