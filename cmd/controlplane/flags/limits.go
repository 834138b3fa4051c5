package flags

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/outbox"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
)

// Limits describes what one peer may take: docs/reference/limits.md.
type Limits struct {
	connections, perAddress, newPerSecond int
	shared                                []string
	outbox                                store.OutboxLimits
}

// Add adds the flags of a control plane.
func (l *Limits) Add(f *pflag.FlagSet) {
	l.AddConnections(f)
	f.IntVar(&l.outbox.Events, "outbox-events", outbox.DefaultEvents, "maximum announcements waiting for the broker; beyond it, superseded announcements are dropped")
	f.IntVar(&l.outbox.PerAgent, "outbox-events-per-agent", outbox.DefaultPerAgent, "--outbox-events for the announcements about one agent and its Apps")
	f.Int64Var(&l.outbox.Bytes, "outbox-bytes", outbox.DefaultBytes, "maximum bytes of announcements waiting for the broker; beyond it, superseded announcements are dropped")
}

// AddConnections adds the flags of listeners only.
func (l *Limits) AddConnections(f *pflag.FlagSet) {
	f.IntVar(&l.connections, "max-connections", limit.DefaultConnections, "maximum open connections of each listener")
	f.IntVar(&l.perAddress, "max-connections-per-address", limit.DefaultPerPeer, "maximum open connections of one address (IPv6: one /64), and the burst of new ones")
	f.IntVar(&l.newPerSecond, "new-connections-per-address", limit.DefaultNewPerSecond, "sustained rate of new connections of one address, per second")
	f.StringSliceVar(&l.shared, "shared-address", nil, "address or network that many agents or Runners share, such as a load balancer's; exempt from limits by address; may be repeated")
}

// Apply writes the limits into the configuration.
func (l *Limits) Apply(cfg *controlplane.Config) error {
	errs := make([]error, 0, len(l.shared))
	cfg.Limits = controlplane.Limits{Connections: l.connections, PerAddress: l.perAddress, NewPerSecond: l.newPerSecond, Outbox: l.outbox}
	for _, text := range l.shared {
		network, err := limit.ParseNetwork(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--shared-address: %w", err))
		}
		cfg.Limits.SharedAddresses = append(cfg.Limits.SharedAddresses, network)
	}
	return errors.Join(errs...)
}
