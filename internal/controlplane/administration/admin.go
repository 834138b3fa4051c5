// Package administration carries out what operators command, by the operator API or in the data
// directory itself, whether or not the control plane is running.
package administration

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/castore"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/discovery"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/enrolment"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/outbox"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peerlink"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/webhook"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/publish"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// Admin carries out the operator's commands on a control plane's data, whether or not the control
// plane is running.
type Admin struct {
	*base

	Tokens     Tokens
	Enrolments enrolment.Pending
	Agents     Agents
	Runners    Runners
	Operators  Operators
	Webhooks   Webhooks
	Releases   Releases
	Gateway    Gateway
	CA         Authority
}

// base is what all commands work on.
type base struct {
	data  datadir.Data
	store *store.Store
	ca    *ca.CA
	now   func() time.Time
	dry   bool // nothing is changed
	set   Settings
}

// Settings are what commands need beyond the data: what the control plane was started with.
type Settings struct {
	Broker   rabbitmq.Config
	Webhooks webhook.Options
	// Acting is nil where no control plane serves.
	Acting Acting
	// Replicas returns the control planes that serve the database; nil where none serves.
	Replicas func(context.Context) []peerlink.Replica
	// ConsoleCode makes a code with which an operator's browser signs in to the console at
	// ConsoleURL; nil where none is served.
	ConsoleURL  string
	ConsoleCode func(context.Context, store.Operator) (code string, expires time.Time, err error)
}

// Acting is how operators act as Runners; nil where no control plane serves.
type Acting interface {
	// Runner returns the Runner as which an operator acts now.
	Runner(ctx context.Context, operator string) (store.Runner, error)
	// Client returns a client of an agent for an operator. Close it in the end.
	Client(ctx context.Context, operator, agentID string) (*client.Client, error)
}

// What the operator does, by what it is done to.
type (
	// Tokens are the enrolment tokens.
	Tokens struct{ *base }
	// Agents are the agents that are registered.
	Agents struct{ *base }
	// Runners are the Runners and what they are granted.
	Runners struct{ *base }
	// Operators are those that may call the operator API.
	Operators struct{ *base }
	// Webhooks are the receivers of events.
	Webhooks struct{ *base }
	// Releases are the versions that are offered to agents.
	Releases struct{ *base }
	// Gateway is who may serve which public host.
	Gateway struct{ *base }
	// Authority is the CA, its rotation, and what it has issued.
	Authority struct{ *base }
)

// Open opens the data of a control plane. It does not create the directory, so that a mistyped
// name does not lead to an empty directory with its own CA. A nil now means time.Now.
func Open(ctx context.Context, data datadir.Data, now func() time.Time) (*Admin, error) {
	if data.Dir != "" && !data.Made() && !data.Shared() {
		return nil, fmt.Errorf("%s is not the data directory of a control plane: it has no %s; "+
			"give --data-dir (or PIPEOPS_DATA_DIR) as `pipeops-controlplane serve` has it, which makes the directory at its first start",
			data.Dir, datadir.FileDatabase)
	}
	return Make(ctx, data, now)
}

// Make is like Open but creates a missing directory.
func Make(ctx context.Context, data datadir.Data, now func() time.Time) (*Admin, error) {
	if now == nil {
		now = time.Now
	}
	if data.Dir == "" {
		return nil, errors.New("--data-dir: is empty; name the directory that `pipeops-controlplane serve` uses")
	}
	if err := data.Make(); err != nil {
		return nil, err
	}
	s, err := data.OpenStore(ctx)
	if err != nil {
		return nil, err
	}
	return Over(ctx, data, s, now)
}

// Over uses a database that is open, which Close closes, as does an error.
func Over(ctx context.Context, data datadir.Data, s *store.Store, now func() time.Time) (*Admin, error) {
	domains, err := castore.Domains(ctx, s)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	authority, err := castore.Open(ctx, data, s, domains, now, false)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return newAdmin(&base{data: data, store: s, ca: authority, now: now}), nil
}

func newAdmin(b *base) *Admin {
	return &Admin{
		base: b, Tokens: Tokens{b}, Enrolments: enrolment.Pending{Store: b.store, Now: b.now}, Agents: Agents{b}, Runners: Runners{b},
		Operators: Operators{b}, Webhooks: Webhooks{b}, Releases: Releases{b}, Gateway: Gateway{b}, CA: Authority{b},
	}
}

// DryRun returns what tries the same and changes nothing.
func (a *Admin) DryRun() *Admin {
	dry := *a.base
	dry.store, dry.dry = a.store.DryRun(), true
	return newAdmin(&dry)
}

// With returns what works with these settings.
func (a *Admin) With(s Settings) *Admin {
	b := *a.base
	b.set = s
	return newAdmin(&b)
}

// Settings returns what With was given.
func (a *Admin) Settings() Settings { return a.set }

// IsDryRun reports whether nothing is changed.
func (a *Admin) IsDryRun() bool { return a.dry }

// Now returns the time by the control plane's clock.
func (a *Admin) Now() time.Time { return a.now() }

// Database returns the database, for what is recorded about the commands themselves.
func (a *Admin) Database() *store.Store { return a.store }

// Close closes the database.
func (a *Admin) Close() error { return a.store.Close() }

// Advertised returns where agents and Runners find the control plane.
func (a *base) Advertised(ctx context.Context) (datadir.Advertised, error) {
	return datadir.LoadAdvertised(ctx, a.store)
}

// advertisedYet is like Advertised, but returns nothing if the control plane has never served.
func (a *base) advertisedYet(ctx context.Context) (datadir.Advertised, error) {
	at, err := a.Advertised(ctx)
	if errors.Is(err, datadir.ErrNeverServed) {
		return datadir.Advertised{}, nil
	}
	return at, err
}

// directory knows the agents' domain once serve has run; before that there are no agents.
func (a *base) directory(ctx context.Context) discovery.Directory {
	at, err := a.Advertised(ctx)
	if err != nil {
		return discovery.Directory{AgentsDomain: datadir.DefaultAgentsDomain}
	}
	return discovery.Directory{AgentsDomain: at.AgentsDomain}
}

// DeadLetters gives access to the announcements that Runners could not handle.
func (a *Admin) DeadLetters(ctx context.Context, broker rabbitmq.Config) (*publish.DeadLetters, error) {
	var err error
	if broker.Seal, err = outbox.Seal(ctx, a.store); err != nil {
		return nil, err
	}
	return publish.NewDeadLetters(broker)
}
