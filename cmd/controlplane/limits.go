package main

import (
	"errors"

	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
)

// limitFlags describe what one peer may take: docs/limits.md.
type limitFlags struct {
	connections, perAddress, newPerSecond int
	shared                                []string
	outbox                                store.OutboxLimits
}

func (l *limitFlags) add(f *pflag.FlagSet) {
	f.IntVar(&l.connections, "max-connections", limit.DefaultConnections, "connections that each listener has open at a time")
	f.IntVar(&l.perAddress, "max-connections-per-address", limit.DefaultPerPeer, "how many of them one address has (IPv6: one /64), and how many it opens at once")
	f.IntVar(&l.newPerSecond, "new-connections-per-address", limit.DefaultNewPerSecond, "new connections per second of one address in the long run")
	f.StringSliceVar(&l.shared, "shared-address", nil, "address or network behind which many agents or Runners are, such as a load balancer's: exempt from limits by address; may be repeated")
	f.IntVar(&l.outbox.Events, "outbox-events", controlplane.DefaultOutboxEvents, "announcements that wait for the broker, past which those are dropped that later ones supersede")
	f.IntVar(&l.outbox.PerAgent, "outbox-events-per-agent", controlplane.DefaultOutboxPerAgent, "--outbox-events for those about one agent and its Apps")
	f.Int64Var(&l.outbox.Bytes, "outbox-bytes", controlplane.DefaultOutboxBytes, "announcements that wait for the broker, in bytes, past which those are dropped that later ones supersede")
}

func (l *limitFlags) apply(cfg *controlplane.Config) error {
	errs := make([]error, 0, len(l.shared))
	cfg.Limits = controlplane.Limits{Connections: l.connections, PerAddress: l.perAddress, NewPerSecond: l.newPerSecond, Outbox: l.outbox}
	for _, text := range l.shared {
		network, err := controlplane.SharedAddress(text)
		errs = append(errs, err)
		cfg.Limits.SharedAddresses = append(cfg.Limits.SharedAddresses, network)
	}
	return errors.Join(errs...)
}
