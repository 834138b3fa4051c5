package controlplane

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// Admin is what the operator does on a control plane's data, whether or not it is
// served at the moment.
type Admin struct {
	store *store.Store
	ca    *ca.CA
	now   func() time.Time
}

// OpenAdmin opens the data of a control plane. It makes no directory: whoever
// mistypes its name is not to administer an empty one with a CA of its own. A
// nil now means time.Now.
func OpenAdmin(ctx context.Context, data Data, now func() time.Time) (*Admin, error) {
	if data.Dir != "" && !data.Made() {
		return nil, fmt.Errorf("%s is not the data directory of a control plane: it has no %s; "+
			"give --data-dir (or PIPEOPS_DATA_DIR) as `pipeops-controlplane serve` has it, which makes the directory at its first start",
			data.Dir, fileDatabase)
	}
	return MakeAdmin(ctx, data, now)
}

// MakeAdmin is OpenAdmin, but makes the directory if there is none.
func MakeAdmin(ctx context.Context, data Data, now func() time.Time) (*Admin, error) {
	if now == nil {
		now = time.Now
	}
	if data.Dir == "" {
		return nil, errors.New("--data-dir: is empty; name the directory that `pipeops-controlplane serve` uses")
	}
	if err := makeDataDir(data.Dir); err != nil {
		return nil, err
	}
	authority, err := ca.Open(filepath.Join(data.Dir, fileCA), now)
	if err != nil {
		return nil, err
	}
	s, err := data.openStore(ctx)
	if err != nil {
		return nil, err
	}
	return &Admin{store: s, ca: authority, now: now}, nil
}

// Close closes the database.
func (a *Admin) Close() error { return a.store.Close() }

// Advertised is where agents and Runners find the control plane.
func (a *Admin) Advertised(ctx context.Context) (Advertised, error) {
	return loadAdvertised(ctx, a.store)
}

// TokenOptions say what a token is good for.
type TokenOptions struct {
	Name string
	// Labels go to the agents that register with it.
	Labels map[string]string
	// Uses of 0 means any number; a TTL of 0 means for ever.
	Uses int
	TTL  time.Duration
}

// CreateToken makes an enrolment token. Its secret cannot be had again.
func (a *Admin) CreateToken(ctx context.Context, opts TokenOptions) (controlapi.Token, store.Token, error) {
	if opts.Uses < 0 || opts.TTL < 0 {
		return controlapi.Token{}, store.Token{}, errors.New("--uses and --ttl must not be negative; 0 means without limit")
	}
	if err := checkLabels(opts.Labels); err != nil {
		return controlapi.Token{}, store.Token{}, err
	}
	token, err := controlapi.NewToken(controlapi.Fingerprint(a.ca.Certificate()))
	if err != nil {
		return controlapi.Token{}, store.Token{}, err
	}
	kept := store.Token{
		ID: token.ID, Name: opts.Name, Labels: opts.Labels, Hash: hex.EncodeToString(token.Hash()),
		MaxUses: opts.Uses, CreatedAt: a.now(),
	}
	if opts.TTL > 0 {
		kept.ExpiresAt = kept.CreatedAt.Add(opts.TTL)
	}
	return token, kept, a.store.CreateToken(ctx, kept)
}

// Tokens lists the enrolment tokens.
func (a *Admin) Tokens(ctx context.Context) ([]store.Token, error) { return a.store.Tokens(ctx) }

// RevokeToken ends a token, named by its ID. Agents that registered with it stay.
func (a *Admin) RevokeToken(ctx context.Context, id string) error {
	err := a.store.RevokeToken(ctx, id, a.now())
	if errors.Is(err, store.ErrNotFound) {
		return errors.New("there is no such token; `pipeops-controlplane token list` shows their IDs")
	}
	return err
}

var runnerName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// CreateRunner issues a Runner's credentials. A Runner that has some gets new ones
// if replace is set, and its old certificate is refused from then on.
func (a *Admin) CreateRunner(ctx context.Context, name string, ttl time.Duration, replace bool) (runnerapi.Credentials, error) {
	if !runnerName.MatchString(name) {
		return runnerapi.Credentials{}, fmt.Errorf("%q is no name for a Runner; use a-z, 0-9 and '-', at most 63 characters", name)
	}
	if ttl < time.Minute {
		return runnerapi.Credentials{}, errors.New("--ttl: must be a minute or more")
	}
	at, err := a.Advertised(ctx)
	if err != nil {
		return runnerapi.Credentials{}, err
	}
	broker, err := at.RunnerBroker.read()
	if err != nil {
		return runnerapi.Credentials{}, err
	}
	issued, key, err := a.ca.Runner(name, runnerapi.RunnerURI(at.TrustDomain, name), ttl)
	if err != nil {
		return runnerapi.Credentials{}, err
	}
	err = a.store.Update(ctx, func(tx *store.Tx) error {
		return a.putRunner(ctx, tx, store.Runner{Name: name, Serial: issued.Serial, CreatedAt: a.now(), ExpiresAt: issued.NotAfter}, replace)
	})
	return runnerapi.Credentials{
		Runner: name, ControlPlane: at.API, Edge: at.Edge, AgentsDomain: at.AgentsDomain, TrustDomain: at.TrustDomain,
		CA: string(a.ca.Bundle()), Certificate: issued.Certificate, Key: string(key), Broker: broker,
	}, err
}

func (a *Admin) putRunner(ctx context.Context, tx *store.Tx, r store.Runner, replace bool) error {
	old, err := tx.Runner(ctx, r.Name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return tx.PutRunner(ctx, r)
	case err != nil:
		return err
	case !replace && old.RevokedAt.IsZero():
		return fmt.Errorf("there is a Runner %s already; choose another name, or give it new credentials with --force (its old ones end)", r.Name)
	}
	if err := tx.RevokeCertificate(ctx, old, a.now()); err != nil {
		return err
	}
	return tx.PutRunner(ctx, r)
}

// read takes the broker's part of the credentials from the files that serve was
// given.
func (b RunnerBroker) read() (runnerapi.BrokerCredentials, error) {
	var c runnerapi.BrokerCredentials
	for to, file := range map[*string]string{&c.URL: b.URLFile, &c.CA: b.CAFile} {
		if file == "" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return c, fmt.Errorf("what Runners need to reach the broker: %w; correct --runner-broker-url-file or --broker-ca of `pipeops-controlplane serve`", err)
		}
		*to = strings.TrimSpace(string(text))
	}
	return c, nil
}

// Runners lists the Runners.
func (a *Admin) Runners(ctx context.Context) ([]store.Runner, error) { return a.store.Runners(ctx) }

// RevokeRunner refuses a Runner's certificate: at once at the control plane, and
// at each agent from its next heartbeat.
func (a *Admin) RevokeRunner(ctx context.Context, name string) error {
	return a.store.Update(ctx, func(tx *store.Tx) error {
		r, err := tx.Runner(ctx, name)
		if errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("there is no Runner %q; `pipeops-controlplane runner list` shows them", name)
		}
		if err != nil {
			return err
		}
		return tx.RevokeCertificate(ctx, r, a.now())
	})
}

// Agents lists the agents as they are announced, revoked ones included.
func (a *Admin) Agents(ctx context.Context) ([]announce.Agent, error) {
	stored, err := a.store.Agents(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]announce.Agent, len(stored))
	for i := range stored {
		list[i] = a.directory(ctx).announced(stored[i])
	}
	return list, nil
}

// directory knows the agents' domain once serve has run; before that there are no
// agents.
func (a *Admin) directory(ctx context.Context) directory {
	at, err := a.Advertised(ctx)
	if err != nil {
		return directory{agentsDomain: DefaultAgentsDomain}
	}
	return directory{agentsDomain: at.AgentsDomain}
}

// Agent finds an agent by name or ID, with the last of its timeline.
func (a *Admin) Agent(ctx context.Context, nameOrID string, events int) (announce.Agent, []announce.Event, error) {
	found, err := findAgent(ctx, a.store, nameOrID)
	if err != nil {
		return announce.Agent{}, nil, err
	}
	timeline, err := a.store.Timeline(ctx, found.ID, events)
	return a.directory(ctx).announced(found), timeline, err
}

type agentFinder interface {
	AgentNamed(ctx context.Context, name string) (store.Agent, error)
	Agent(ctx context.Context, id string) (store.Agent, error)
}

func findAgent(ctx context.Context, s agentFinder, nameOrID string) (store.Agent, error) {
	found, err := s.Agent(ctx, nameOrID)
	if errors.Is(err, store.ErrNotFound) {
		found, err = s.AgentNamed(ctx, nameOrID)
	}
	if errors.Is(err, store.ErrNotFound) {
		return found, fmt.Errorf("there is no agent with the name or ID %q; `pipeops-controlplane agents` lists them", nameOrID)
	}
	return found, err
}

// RevokeAgent refuses an agent from now on, and announces that it is gone.
func (a *Admin) RevokeAgent(ctx context.Context, nameOrID string) (announce.Agent, error) {
	d := a.directory(ctx)
	var found store.Agent
	err := a.store.Update(ctx, func(tx *store.Tx) error {
		var err error
		if found, err = findAgent(ctx, tx, nameOrID); err != nil || found.Revoked() {
			return err
		}
		found.State, found.RevokedAt = announce.StateRevoked, a.now()
		return d.write(ctx, tx, announce.AgentRemoved, found, a.now())
	})
	return d.announced(found), err
}

// RemoveAgent forgets an agent that was revoked: its cluster may register anew,
// as another agent.
func (a *Admin) RemoveAgent(ctx context.Context, nameOrID string) (announce.Agent, error) {
	var found store.Agent
	err := a.store.Update(ctx, func(tx *store.Tx) error {
		var err error
		if found, err = findAgent(ctx, tx, nameOrID); err != nil {
			return err
		}
		if !found.Revoked() {
			return fmt.Errorf("agent %s is not revoked; run `pipeops-controlplane agent revoke %s` first", found.Name, found.ID)
		}
		return tx.DeleteAgent(ctx, found.ID)
	})
	return a.directory(ctx).announced(found), err
}
