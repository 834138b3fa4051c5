package controlplane

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxRunners bounds the Runners there may be: an announcement names each that it is
// for in one AMQP header, which has to fit into a frame of 128 KiB.
const maxRunners = 1000

var runnerName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// RunnerOptions describe a Runner's credentials.
type RunnerOptions struct {
	Name string
	// TTL is how long each of its certificates is valid; the Runner renews them itself.
	TTL time.Duration
	// Agents are those that it may see and reach.
	Agents runnerapi.Grant
	// BrokerURLFile holds the URL of an account at the broker that is this Runner's
	// own. Empty is for that which all Runners share.
	BrokerURLFile string
	// Replace gives a Runner that has credentials new ones, and ends the old.
	Replace bool

	reason string // for the log of certificates
}

func (o *RunnerOptions) validate() error {
	if !runnerName.MatchString(o.Name) {
		return fmt.Errorf("%q is no name for a Runner; use a-z, 0-9 and '-', at most 63 characters", o.Name)
	}
	if o.TTL < time.Minute {
		return errors.New("--ttl: must be a minute or more")
	}
	return nil
}

// CreateRunner issues the credentials of a Runner that may see and reach all
// agents. A Runner that has some gets new ones if replace is set, and its old
// certificate is refused from then on.
func (a *Admin) CreateRunner(ctx context.Context, name string, ttl time.Duration, replace bool) (runnerapi.Credentials, error) {
	return a.IssueRunner(ctx, RunnerOptions{Name: name, TTL: ttl, Replace: replace})
}

// IssueRunner issues a Runner's credentials.
func (a *Admin) IssueRunner(ctx context.Context, opts RunnerOptions) (runnerapi.Credentials, error) {
	if err := opts.validate(); err != nil {
		return runnerapi.Credentials{}, err
	}
	if opts.reason == "" {
		opts.reason = "runner create"
	}
	at, err := a.Advertised(ctx)
	if err != nil {
		return runnerapi.Credentials{}, err
	}
	if opts.BrokerURLFile != "" {
		at.RunnerBroker.URLFile = opts.BrokerURLFile
	}
	broker, err := at.RunnerBroker.read()
	if err != nil {
		return runnerapi.Credentials{}, err
	}
	carried, err := opts.Agents.Extensions()
	if err != nil {
		return runnerapi.Credentials{}, err
	}
	if _, err := a.ca.Reload(); err != nil {
		return runnerapi.Credentials{}, err
	}
	issued, key, err := a.ca.Runner(opts.Name, runnerapi.RunnerURI(at.TrustDomain, opts.Name), opts.TTL, opts.reason, carried...)
	if err != nil {
		return runnerapi.Credentials{}, err
	}
	runner := store.Runner{
		Name: opts.Name, Serial: issued.Serial, Agents: opts.Agents.String(), CreatedAt: a.now(), ExpiresAt: issued.NotAfter, TTL: opts.TTL,
	}
	err = a.store.Update(ctx, func(tx *store.Tx) error {
		if err := a.putRunner(ctx, tx, runner, opts.Replace); err != nil {
			return err
		}
		return putRunnerTrust(ctx, tx, a.ca, opts.Name, issued)
	})
	if err != nil {
		return runnerapi.Credentials{}, err
	}
	return runnerapi.Credentials{
		Runner: opts.Name, ControlPlane: at.API, Edge: edgesOf(at.Edge)[0], AgentsDomain: at.AgentsDomain, TrustDomain: at.TrustDomain,
		CA: string(a.ca.Bundle()), Certificate: issued.Certificate, Key: string(key), Broker: broker,
	}, nil
}

// newRunner adds a Runner, if there may be one more.
func (a *Admin) newRunner(ctx context.Context, tx *store.Tx, r store.Runner) error {
	all, err := tx.Runners(ctx)
	if err != nil {
		return err
	}
	if len(all) >= maxRunners {
		return fmt.Errorf("there are %d Runners, which is the most there may be; give a name that is used no more new credentials with --force", len(all))
	}
	return tx.PutRunner(ctx, r)
}
