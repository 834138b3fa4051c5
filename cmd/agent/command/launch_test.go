package command

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/agent/launch"
	"github.com/pipeops/pipeops-vm-agent/agent/update"
	"github.com/pipeops/pipeops-vm-agent/internal/release"
	"github.com/pipeops/pipeops-vm-agent/test/releasetest"
)

func TestSelfUpdate_NeedsKey(t *testing.T) {
	_, err := launchRight(&config.Config{}, zerolog.Nop())
	require.NoError(t, err, "not turned on")
	_, err = launchRight(&config.Config{SelfUpdate: true}, zerolog.Nop())
	require.ErrorIs(t, err, errUsage)
	require.ErrorContains(t, err, "PIPEOPS_UPDATE_KEYS")
	_, err = launchRight(&config.Config{SelfUpdate: true, UpdateKeys: []string{releasetest.PublicKey}}, zerolog.Nop())
	require.NoError(t, err)
}

func TestTrial_UsesOwnPorts(t *testing.T) {
	t.Setenv("PIPEOPS_UPDATE_TRIAL", version)
	cfg := config.Config{SelfUpdate: true, StateDir: t.TempDir(), HealthAddress: "127.0.0.1:8080"}
	_, err := launchRight(&cfg, zerolog.Nop())
	require.ErrorContains(t, err, "PIPEOPS_UPDATE_KEYS", "it could take no offers in its own place")
	cfg.UpdateKeys = []string{releasetest.PublicKey}
	replica, err := launchRight(&cfg, zerolog.Nop())
	require.NoError(t, err)
	assert.Regexp(t, `-trial$`, replica)
	assert.Equal(t, "127.0.0.1:0", cfg.HealthAddress)
	assert.False(t, cfg.SelfUpdate, "it takes no offers")
	t.Setenv("PIPEOPS_UPDATE_TRIAL", "v9.9.9")
	cfg.SelfUpdate = true
	_, err = launchRight(&cfg, zerolog.Nop())
	require.ErrorContains(t, err, "this program is "+version+", not v9.9.9")
}

// TestLaunch_NewerReleaseRefusesSettings: systemd does not restart a program that exits with 2
// (RestartPreventExitStatus).
func TestLaunch_NewerReleaseRefusesSettings(t *testing.T) {
	unknown := func() int {
		root := newRoot()
		root.SetArgs([]string{"run", "--no-such-setting"})
		return execute(t.Context(), root, io.Discard)
	}
	assert.Equal(t, exitUsage, unknown())
	t.Setenv("PIPEOPS_UPDATE_LAUNCHED", "v1.1.0")
	assert.Equal(t, exitError, unknown())
}

// TestLaunch_NewerReleaseFails has a record that cannot be read.
func TestLaunch_NewerReleaseFails(t *testing.T) {
	cfg := config.Config{SelfUpdate: true, StateDir: t.TempDir(), UpdateKeys: []string{releasetest.PublicKey}}
	record := filepath.Join(cfg.StateDir, "update", "record.json")
	require.NoError(t, os.MkdirAll(filepath.Dir(record), 0o700))
	require.NoError(t, os.WriteFile(record, []byte("{"), 0o600))
	var said bytes.Buffer
	_, err := launchRight(&cfg, zerolog.New(&said))
	require.NoError(t, err)
	assert.Contains(t, said.String(), "is damaged")
	assert.Contains(t, said.String(), "fix: remove it")
	assert.Contains(t, said.String(), "continuing with the installed program")
	t.Setenv("PIPEOPS_UPDATE_LAUNCHED", version)
	_, err = launchRight(&cfg, zerolog.Nop())
	require.ErrorContains(t, err, "is damaged", "the service manager starts the installed one")
}

// TestLaunch_UnstartableRelease has a confirmed release that no kernel can execute.
func TestLaunch_UnstartableRelease(t *testing.T) {
	if !launch.Supported {
		t.Skip("no program becomes another here")
	}
	dir := launch.In(t.TempDir())
	text := []byte("no program")
	sum := sha256.Sum256(text)
	m := release.Manifest{Version: "v1.1.0", Commit: "abc", Files: []release.File{{
		Name: "a", Kind: release.KindAgent, OS: runtime.GOOS, Arch: runtime.GOARCH,
		SHA256: hex.EncodeToString(sum[:]), Size: int64(len(text)),
	}}}
	manifest, signature := releasetest.Sign(t, m)
	require.NoError(t, dir.Stage(&m, manifest, signature, bytes.NewReader(text)))
	staged := launch.Staged{Version: "v1.1.0", Offer: "o", From: "v1.0.0"}
	require.NoError(t, dir.Change(func(r *launch.Record) { r.Confirm(staged); r.Prove(staged) }))
	var said bytes.Buffer
	require.NoError(t, goOn(launch.Launcher{Dir: dir, Version: "v1.0.0", Trust: releasetest.Trust(t)}, zerolog.New(&said)))
	assert.Contains(t, said.String(), "exec format error")
	assert.Contains(t, said.String(), "continuing with the installed program")
}

func TestLaunch_StopsWhileDraining(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	broken, restarted := errors.New("it broke"), errors.New("restarted")
	again := func() error { return restarted }
	require.ErrorIs(t, relaunch(ctx, update.ErrRelaunch, again), restarted)
	require.ErrorIs(t, relaunch(ctx, broken, again), broken)
	require.NoError(t, relaunch(ctx, nil, again))
	stop()
	require.NoError(t, relaunch(ctx, update.ErrRelaunch, again))
}

func TestServiceEnvironment(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.env")
	text := "# a comment\n\nCLUSTER_NAME=prod-1\n  LOG_LEVEL=\"debug\"\nA='b=c'\n#HTTPS_PROXY=x\nnonsense\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	settings, err := readEnvironment(file)
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"CLUSTER_NAME": "prod-1", "LOG_LEVEL": "debug", "A": "b=c"}, settings)
}
