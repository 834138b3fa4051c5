package routes

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/wake"
)

// modesPause is the least time between two writes of modes.
const modesPause = time.Second

// Modes writes into the database how hosts are reached, so that lists show it. Of several
// gateways that see a host in different ways, the one counts that has seen a change last.
type Modes struct {
	store   *store.Store
	log     zerolog.Logger
	wake    wake.Signal
	written map[string]store.HostMode // by host
}

// NewModes returns Modes that writes into the database.
func NewModes(s *store.Store, log zerolog.Logger) *Modes {
	return &Modes{store: s, log: log, wake: wake.New(), written: map[string]store.HostMode{}}
}

// Look makes Run compare soon.
func (m *Modes) Look() {
	m.wake.Raise()
}

// Run writes changes until the context ends.
func (m *Modes) Run(ctx context.Context, g *gateway.Gateway) error {
	if g.TunnelOnly() {
		return m.forget(ctx)
	}
	for {
		if err := m.write(ctx, g); err != nil && ctx.Err() == nil {
			m.log.Warn().Err(err).Msg("failed to write how hosts are reached; lists of routes may be stale")
			time.AfterFunc(modesPause, m.Look)
		}
		retry.Wait(ctx, modesPause)
		if !m.wake.Wait(ctx) {
			return nil
		}
	}
}

func (m *Modes) write(ctx context.Context, g *gateway.Gateway) error {
	now := map[string]store.HostMode{}
	var changed []store.HostMode
	for _, s := range g.Modes() {
		mode := store.HostMode{AgentID: s.AgentID, Host: s.Name, Mode: gateway.ModeTunnel, Reason: printable.Text(s.Reason)}
		if s.Direct {
			mode.Mode = gateway.ModeDirect
		}
		if now[s.Name] = mode; m.written[s.Name] != mode {
			changed = append(changed, mode)
		}
	}
	if len(changed) > 0 {
		limited, cancel := context.WithTimeout(ctx, store.Timeout)
		defer cancel()
		if err := m.store.PutHostModes(limited, changed); err != nil {
			return err
		}
	}
	m.written = now
	return nil
}

// forget removes what a gateway in another mode wrote.
func (m *Modes) forget(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, store.Timeout)
	defer cancel()
	if err := m.store.ForgetHostModes(limited); err != nil {
		m.log.Warn().Err(err).Msg("lists of routes may show stale modes")
	}
	return nil
}
