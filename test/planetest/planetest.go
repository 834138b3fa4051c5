// Package planetest gives a test a real control plane in its own process, without a broker. It is
// the counterpart of kubetest at the agent's other end.
package planetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// patience is how long an agent may take until it is online: seconds, on a
// machine that has nothing else to do.
const patience = 5 * time.Minute

// Plane is a control plane with its operator's commands. It ends with its test.
type Plane struct {
	*controlplane.ControlPlane
	*administration.Admin
	// Clock is the control plane's.
	Clock *Clock
	// Config is what it runs with, from Start on with its addresses.
	Config controlplane.Config

	stop func()
}

// Clock runs with the real clock, ahead of it by an amount that the test sets.
type Clock struct{ ahead atomic.Int64 }

// Now returns the time.
func (c *Clock) Now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

// Advance puts the clock ahead.
func (c *Clock) Advance(d time.Duration) { c.ahead.Add(int64(d)) }

// Start runs a control plane on free ports of this machine.
func Start(t *testing.T, change ...func(*controlplane.Config)) *Plane {
	t.Helper()
	return StartBehind(t, 0, change...)
}

// StartBehind is like Start with a clock that is initially behind the real one: what was issued
// before the clock is put ahead is valid in real time as well.
func StartBehind(t *testing.T, behind time.Duration, change ...func(*controlplane.Config)) *Plane {
	t.Helper()
	p := &Plane{Clock: &Clock{}}
	p.Clock.Advance(-behind)
	p.Config = controlplane.Config{
		DataDir: t.TempDir(), APIListen: "127.0.0.1:0", TunnelListen: "127.0.0.1:0", EdgeListen: "127.0.0.1:0",
		HeartbeatInterval: time.Second, Log: zerolog.Nop(), Now: p.Clock.Now,
	}
	for _, f := range change {
		f(&p.Config)
	}
	p.Restart(t)
	t.Cleanup(func() { p.Stop() })
	return p
}

// Restart runs the control plane after Stop, with the same data and addresses.
func (p *Plane) Restart(t *testing.T) {
	t.Helper()
	var err error
	p.ControlPlane, err = controlplane.New(t.Context(), p.Config)
	require.NoError(t, err)
	at := p.Addrs()
	p.Config.APIListen, p.Config.TunnelListen, p.Config.EdgeListen = at.API.String(), at.Tunnel.String(), at.Edge.String()
	p.Admin, err = administration.Open(t.Context(), datadir.Data{Dir: p.Config.DataDir, Database: p.Config.Database}, p.Clock.Now)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background()) // a subtest may restart it for the tests after it
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(t, await.Receive(t, done, "the end of the control plane"))
		assert.NoError(t, p.Admin.Close())
	})
}

// Stop ends the control plane and waits for it. It may be called again.
func (p *Plane) Stop() { p.stop() }

// URL returns where agents find it.
func (p *Plane) URL() string { return p.ControlPlane.Advertised().API }

// Token creates an enrolment token.
func (p *Plane) Token(t *testing.T, opts administration.TokenOptions) string {
	t.Helper()
	token, _, err := p.Tokens.Create(t.Context(), opts)
	require.NoError(t, err)
	return token.Reveal()
}

// AwaitOnline waits until an agent is online that was seen after that time, on the control plane's
// clock, and returns its ID.
func (p *Plane) AwaitOnline(t *testing.T, after time.Time) (id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, harness.Eventually(ctx, "the agent is online", func(ctx context.Context) error {
		agents, err := p.Agents.List(ctx)
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
