// Package agents hears the registered agents: heartbeats, events, audit records, clones. It also
// makes agents request their news.
package agents

import (
	"context"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/liveness"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// Fleet hears agents: heartbeats, events, audit records. It has a part of controlapi.Backend.
type Fleet struct {
	cfg        Config
	store      *store.Store
	ca         ca.Trust
	liveness   *liveness.Liveness
	directory  discovery.Directory
	clones     *Clones
	trust      *agentTrust
	duplicates *duplicates
	lost       *limit.Failures[string] // by agent: what it says of lost revocations
}

// Config is how agents are heard.
type Config struct {
	// Heartbeats is the interval of heartbeats in seconds.
	Heartbeats int
	// Tunnels returns the endpoints that an agent must keep a tunnel to, of several.
	Tunnels func(agentID string) []controlapi.TunnelEndpoint
	// Console returns the console's address for browsers.
	Console func() string
	// VisitorSignIn returns where visitors of Apps sign in; nil where they cannot.
	VisitorSignIn func() *controlapi.VisitorSignIn
	// Shared is set if agents may also have reached another control plane.
	Shared bool
	// Audited is called with the number of accepted audit records.
	Audited func(records int)
	Log     zerolog.Logger
	Now     func() time.Time
}

// New returns what hears agents.
func New(s *store.Store, trust ca.Trust, l *liveness.Liveness, d discovery.Directory, c *Clones, cfg Config) *Fleet {
	return &Fleet{
		cfg: cfg, store: s, ca: trust, liveness: l, directory: d, clones: c, trust: &agentTrust{store: s}, duplicates: newDuplicates(cfg.Now),
		lost: limit.NewFailures[string](1, lostEvery),
	}
}

// forgetEvery is how often it is looked for what can be forgotten.
const forgetEvery = time.Hour

// Run drops what this process alone remembers of agents that are not heard of, until the context
// ends.
func (r *Fleet) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		r.duplicates.forget(r.cfg.Now())
		retry.Wait(ctx, forgetEvery)
	}
	return nil
}
