package agent_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/agent"
	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
	"github.com/pipeops/pipeops-vm-agent/test/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m)) }

const (
	name     = "life"
	patience = time.Minute
)

// clock runs with the real one, ahead of it by what the test says.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.offset.Load())) }

// plane is a control plane in this process, without a broker.
type plane struct {
	*controlplane.ControlPlane
	*controlplane.Admin
	clock *clock
	cfg   controlplane.Config
	stop  func()
}

func startPlane(t *testing.T, change ...func(*controlplane.Config)) *plane {
	t.Helper()
	p := &plane{clock: &clock{}}
	p.cfg = controlplane.Config{
		DataDir: t.TempDir(), APIListen: "127.0.0.1:0", TunnelListen: "127.0.0.1:0", EdgeListen: "127.0.0.1:0",
		HeartbeatInterval: time.Second, Log: zerolog.Nop(), Now: p.clock.now,
	}
	for _, f := range change {
		f(&p.cfg)
	}
	p.start(t)
	t.Cleanup(func() { p.stop() })
	return p
}

// start runs the control plane, a second time where it was before.
func (p *plane) start(t *testing.T) {
	t.Helper()
	var err error
	p.ControlPlane, err = controlplane.New(t.Context(), p.cfg)
	require.NoError(t, err)
	addrs := p.Addrs()
	p.cfg.APIListen, p.cfg.TunnelListen, p.cfg.EdgeListen = addrs.API.String(), addrs.Tunnel.String(), addrs.Edge.String()
	p.Admin, err = controlplane.OpenAdmin(t.Context(), p.cfg.DataDir, p.clock.now)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, <-done)
		assert.NoError(t, p.Admin.Close())
	})
}

func (p *plane) token(t *testing.T) string {
	t.Helper()
	token, _, err := p.CreateToken(t.Context(), controlplane.TokenOptions{TTL: time.Hour})
	require.NoError(t, err)
	return token.Reveal()
}

// awaitOnline waits until the agent is online and answers its ID.
func (p *plane) awaitOnline(t *testing.T, after time.Time) (id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, "the agent is online", func(ctx context.Context) error {
		agents, err := p.Agents(ctx)
		if err != nil {
			return err
		}
		for _, a := range agents {
			if id = a.ID; a.State == announce.StateOnline && !a.LastSeen.Before(after) {
				return nil
			}
		}
		return fmt.Errorf("agents: %+v", agents)
	}))
	return id
}

// running is an agent in this process.
type running struct {
	cancel context.CancelFunc
	done   chan error
}

// run starts an agent whose identity is in dir.
func run(t *testing.T, p *plane, dir, token string) *running {
	t.Helper()
	return launch(t, agent.Options{
		Config: config.Config{
			ControlPlaneURL: p.ControlPlane.Advertised().API, Token: token, ClusterName: name, StateDir: dir,
			Namespace: kubetest.AgentNamespace, HealthAddress: "127.0.0.1:0",
		},
		Version: "test", Log: zerolog.New(zerolog.NewTestWriter(t)).Level(zerolog.WarnLevel), Now: p.clock.now,
	})
}

// launch runs an agent in this process, in the tests' cluster.
func launch(t *testing.T, opts agent.Options) *running {
	t.Helper()
	opts.Kubernetes = kubetest.ControlPlane(t).Agent
	a, err := agent.New(opts)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- a.Run(ctx) }()
	t.Cleanup(r.stop)
	return r
}

// stop ends the agent and waits for it. It may be called again.
func (r *running) stop() {
	r.cancel()
	if r.done != nil {
		<-r.done
		r.done = nil
	}
}

// end waits until the agent ends by itself and answers why.
func (r *running) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.done:
		r.done = nil
		return err
	case <-time.After(patience):
		t.Fatal("the agent goes on")
		return nil
	}
}

func TestARestartKeepsTheAgentsID(t *testing.T) {
	p, dir := startPlane(t), t.TempDir()
	first := run(t, p, dir, p.token(t))
	id := p.awaitOnline(t, time.Time{})
	first.stop()
	again := p.clock.now()
	run(t, p, dir, "")
	assert.Equal(t, id, p.awaitOnline(t, again))
}

// TestAnAgentThatWasForgottenRegistersAgain gives the control plane back a
// backup from before the agent registered.
func TestAnAgentThatWasForgottenRegistersAgain(t *testing.T) {
	p := startPlane(t)
	token := p.token(t)
	p.stop()
	backup := t.TempDir() + "/data"
	require.NoError(t, exec.Command("cp", "-a", p.cfg.DataDir, backup).Run())
	p.start(t)
	run(t, p, t.TempDir(), token)
	p.awaitOnline(t, time.Time{})

	p.stop()
	require.NoError(t, os.RemoveAll(p.cfg.DataDir))
	require.NoError(t, exec.Command("cp", "-a", backup, p.cfg.DataDir).Run())
	restored := p.clock.now()
	p.start(t)
	p.awaitOnline(t, restored)
}

func TestARevokedAgentEndsAndSaysWhatToDo(t *testing.T) {
	p := startPlane(t)
	r := run(t, p, t.TempDir(), p.token(t))
	_, err := p.RevokeAgent(t.Context(), p.awaitOnline(t, time.Time{}))
	require.NoError(t, err)
	err = r.end(t)
	require.ErrorContains(t, err, "revoked")
	require.ErrorContains(t, err, "fix")
}

func TestAnAgentThatWasAwayForLongProvesItsOldKey(t *testing.T) {
	p, dir := startPlane(t), t.TempDir()
	first := run(t, p, dir, p.token(t))
	id := p.awaitOnline(t, time.Time{})
	first.stop()
	p.clock.offset.Add(int64(30 * 24 * time.Hour))
	again := p.clock.now()
	run(t, p, dir, "")
	assert.Equal(t, id, p.awaitOnline(t, again))
}

func TestAnAgentIsMovedByAnotherControlPlanesToken(t *testing.T) {
	from, to, dir := startPlane(t), startPlane(t), t.TempDir()
	first := run(t, from, dir, from.token(t))
	from.awaitOnline(t, time.Time{})
	first.stop()
	run(t, to, dir, to.token(t))
	to.awaitOnline(t, time.Time{})
}

func TestWithoutATokenAndAnIdentityTheAgentSaysWhatItNeeds(t *testing.T) {
	p := startPlane(t)
	err := run(t, p, t.TempDir(), "").end(t)
	require.ErrorContains(t, err, "AGENT_TOKEN")
	require.ErrorContains(t, err, "token create")
}
