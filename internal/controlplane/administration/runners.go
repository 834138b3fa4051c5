package administration

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/exchange"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

func (a *Runners) putRunner(ctx context.Context, tx *store.Tx, r store.Runner, opts *RunnerOptions) error {
	old, err := tx.Runner(ctx, r.Name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return a.newRunner(ctx, tx, r)
	case err != nil:
		return err
	case !opts.Replace && old.RevokedAt.IsZero():
		return conflict("choose another name, or give it new credentials with --force (this revokes the old ones)", "there is a Runner %s already", r.Name)
	}
	if err := opts.unchanged(old); err != nil {
		return err
	}
	if err := a.revoke(ctx, tx, old); err != nil {
		return err
	}
	return tx.PutRunner(ctx, r)
}

// unchanged refuses to replace another grant than that from which the new one was made.
func (o *RunnerOptions) unchanged(old store.Runner) error {
	if o.From == nil {
		return nil
	}
	err := runnerapi.Unchanged("Runner "+old.Name, "grant", strconv.Quote(*o.From), strconv.Quote(old.Agents))
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return p.WithField("from")
	}
	return err
}

// List returns the Runners.
func (a *Runners) List(ctx context.Context) ([]store.Runner, error) { return a.store.Runners(ctx) }

// Find returns the Runner of a name.
func (a *Runners) Find(ctx context.Context, name string) (store.Runner, error) {
	return findRunner(ctx, a.store, name)
}

// Revoke revokes a Runner's certificate: at once at the control plane, and at each agent from
// its next heartbeat.
func (a *Runners) Revoke(ctx context.Context, name string) error {
	return a.store.Update(ctx, func(tx *store.Tx) error {
		r, err := findRunner(ctx, tx, name)
		if err != nil {
			return err
		}
		return a.revoke(ctx, tx, r)
	})
}

// revoke revokes a Runner's certificate and makes the change known to the agents.
func (a *Runners) revoke(ctx context.Context, tx *store.Tx, r store.Runner) error {
	if r.OpenID != nil { // one may be issued at this moment
		r.ExpiresAt = a.now().Add(2 * exchange.TTL)
	}
	if err := tx.RevokeCertificate(ctx, r, a.now()); err != nil {
		return err
	}
	return tx.RequestRefresh(ctx, store.EveryAgent)
}

// DefaultRunnerTTL is how long a Runner's certificate is valid. The Runner renews it itself.
const DefaultRunnerTTL = 24 * time.Hour

// MaxRunners bounds the Runners there may be: an announcement names each that it is
// for in one AMQP header, which has to fit into a frame of 128 KiB.
const MaxRunners = 1000

var runnerName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// RunnerOptions describe a Runner's credentials.
type RunnerOptions struct {
	Name string
	// TTL is how long each of its certificates is valid; the Runner renews them itself.
	TTL time.Duration
	// Agents are those that it may see and reach.
	Agents credentials.Grant
	// BrokerURL is that of an account at the broker that is this Runner's own, a secret. Empty is
	// for that which all Runners share.
	BrokerURL string
	// Replace gives a Runner that has credentials new ones, and ends the old.
	Replace bool
	// OpenID is whose ID tokens the Runner gets its certificates for, in place of credentials; nil
	// for none. Without an audience, that is the URL of the control plane.
	OpenID *store.Binding
	// From is the grant, as lists show it, from which this one was made; nil for any.
	From *string

	reason string // for the log of certificates
}

func (o *RunnerOptions) validate() error {
	if !runnerName.MatchString(o.Name) {
		return invalid("use a-z, 0-9 and '-', at most 63 characters", "%q is not a valid Runner name", o.Name)
	}
	if o.OpenID != nil {
		return o.validateBinding()
	}
	if o.TTL < time.Minute {
		return invalid("", "--ttl: must be a minute or more")
	}
	if o.BrokerURL != "" {
		if err := rabbitmq.CheckURLs(strings.Split(o.BrokerURL, ",")); err != nil {
			return invalid("correct the file; separate several URLs with commas", "--broker-url-file: %v", err)
		}
	}
	return nil
}

// Create issues the credentials of a Runner that may see and reach all
// agents. A Runner that has some gets new ones if replace is set, and its old
// certificate is refused from then on.
func (a *Runners) Create(ctx context.Context, name string, ttl time.Duration, replace bool) (credentials.Credentials, error) {
	return a.Issue(ctx, RunnerOptions{Name: name, TTL: ttl, Replace: replace})
}

// Issue issues a Runner's credentials. Those of a Runner with a binding have no certificate and no
// key.
func (a *Runners) Issue(ctx context.Context, opts RunnerOptions) (credentials.Credentials, error) {
	if err := opts.validate(); err != nil {
		return credentials.Credentials{}, err
	}
	opts.reason = cmp.Or(opts.reason, "runner create")
	at, err := a.Advertised(ctx)
	if err != nil {
		return credentials.Credentials{}, err
	}
	if opts.OpenID != nil {
		return a.bind(ctx, &opts, at)
	}
	if opts.BrokerURL != "" {
		at.RunnerBroker.URLFile = ""
	}
	broker, err := at.RunnerBroker.Read()
	if err != nil {
		return credentials.Credentials{}, err
	}
	broker.URL = cmp.Or(opts.BrokerURL, broker.URL)
	carried, err := opts.Agents.Extensions()
	if err != nil {
		return credentials.Credentials{}, err
	}
	if _, err := a.ca.Reload(); err != nil {
		return credentials.Credentials{}, err
	}
	if a.dry {
		return credentials.Credentials{Runner: opts.Name}, a.store.Update(ctx, func(tx *store.Tx) error {
			return a.putRunner(ctx, tx, store.Runner{Name: opts.Name}, &opts)
		})
	}
	issued, key, err := a.ca.Client(opts.Name, credentials.RunnerURI(at.TrustDomain, opts.Name), opts.TTL, opts.reason, carried...)
	if err != nil {
		return credentials.Credentials{}, err
	}
	runner := store.Runner{
		Name: opts.Name, Serial: issued.Serial, Agents: opts.Agents.String(), CreatedAt: a.now(), ExpiresAt: issued.NotAfter, TTL: opts.TTL,
	}
	err = a.store.Update(ctx, func(tx *store.Tx) error {
		if err := a.putRunner(ctx, tx, runner, &opts); err != nil {
			return err
		}
		return authn.PutRunnerTrust(ctx, tx, a.ca.Trust, opts.Name, issued)
	})
	if err != nil {
		return credentials.Credentials{}, err
	}
	return credentials.Credentials{
		Runner: opts.Name, ControlPlane: at.API, Edge: store.SplitEdges(at.Edge)[0], AgentsDomain: at.AgentsDomain, TrustDomain: at.TrustDomain,
		CA: string(a.ca.Bundle()), Certificate: issued.Certificate, Key: string(key), Broker: broker,
	}, nil
}

// newRunner adds a Runner, if there may be one more.
func (a *Runners) newRunner(ctx context.Context, tx *store.Tx, r store.Runner) error {
	all, err := tx.Runners(ctx)
	if err != nil {
		return err
	}
	if len(all) >= MaxRunners {
		return conflict("give a name that is used no more new credentials with --force", "there are %d Runners, which is the most there may be", len(all))
	}
	return tx.PutRunner(ctx, r)
}

// Grant changes a Runner's grant, and keeps its binding. It issues new credentials, because the
// certificate carries the grant, and revokes the old certificate. The new one lasts as long as the
// old one was made for. from is as in RunnerOptions.
func (a *Runners) Grant(ctx context.Context, name string, agents credentials.Grant, brokerURL string, from *string) (credentials.Credentials, error) {
	old, err := a.Find(ctx, name)
	if err != nil {
		return credentials.Credentials{}, err
	}
	if !old.RevokedAt.IsZero() {
		return credentials.Credentials{}, conflict("create it again with `pipeops-controlplane runner create "+name+" --force`", "Runner %s was revoked", name)
	}
	return a.Issue(ctx, RunnerOptions{Name: name, TTL: old.TTL, Agents: agents, BrokerURL: brokerURL, OpenID: old.OpenID, Replace: true, From: from, reason: "runner grant"})
}

// runnerFinder is the store, or a transaction in it.
type runnerFinder interface {
	Runner(ctx context.Context, name string) (store.Runner, error)
}

func findRunner(ctx context.Context, in runnerFinder, name string) (store.Runner, error) {
	r, err := in.Runner(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return r, missing("`pipeops-controlplane runner list` shows them", "there is no Runner %q", name)
	}
	return r, err
}
