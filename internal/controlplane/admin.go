package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// Admin carries out the operator's commands on a control plane's data, whether or not the control
// plane is running.
type Admin struct {
	dir   string
	data  Data
	store *store.Store
	ca    *ca.CA
	now   func() time.Time
}

// OpenAdmin opens the data of a control plane. It does not create the directory, so that a mistyped
// name does not lead to an empty directory with a CA of its own. A nil now means time.Now.
func OpenAdmin(ctx context.Context, data Data, now func() time.Time) (*Admin, error) {
	if data.Dir != "" && !data.Made() && !data.Shared() {
		return nil, fmt.Errorf("%s is not the data directory of a control plane: it has no %s; "+
			"give --data-dir (or PIPEOPS_DATA_DIR) as `pipeops-controlplane serve` has it, which makes the directory at its first start",
			data.Dir, fileDatabase)
	}
	return MakeAdmin(ctx, data, now)
}

// MakeAdmin is like OpenAdmin but creates a missing directory.
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
	s, err := data.openStore(ctx)
	if err != nil {
		return nil, err
	}
	domains, err := domainsOf(ctx, s)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	authority, err := data.openCA(ctx, s, domains, now, false)
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &Admin{dir: data.Dir, data: data, store: s, ca: authority, now: now}, nil
}

// Close closes the database.
func (a *Admin) Close() error { return a.store.Close() }

// Advertised returns where agents and Runners find the control plane.
func (a *Admin) Advertised(ctx context.Context) (Advertised, error) {
	return loadAdvertised(ctx, a.store)
}

// advertisedYet is like Advertised, but returns nothing if the control plane has never served.
func (a *Admin) advertisedYet(ctx context.Context) (Advertised, error) {
	at, err := a.Advertised(ctx)
	if errors.Is(err, ErrNeverServed) {
		return Advertised{}, nil
	}
	return at, err
}

// TokenOptions describes what a token allows.
type TokenOptions struct {
	Name string
	// Labels are set on the agents that register with the token.
	Labels map[string]string
	// Uses of 0 means any number; a TTL of 0 means no expiry.
	Uses int
	TTL  time.Duration
	// Approve makes each registration with the token wait for the operator.
	Approve bool
}

// Check returns an error for invalid options, before a data directory is made for them.
func (o TokenOptions) Check() error {
	switch {
	case o.Uses < 0:
		return errors.New("--uses: must not be negative; 0 means any number of agents")
	case o.TTL < 0:
		return errors.New("--ttl: must not be negative; 0 means for ever")
	}
	if err := selectable(o.Labels); err != nil {
		return fmt.Errorf("--label: %w", err)
	}
	return nil
}

// CreateToken creates an enrolment token. Its secret cannot be read again.
func (a *Admin) CreateToken(ctx context.Context, opts TokenOptions) (controlapi.Token, store.Token, error) {
	if err := opts.Check(); err != nil {
		return controlapi.Token{}, store.Token{}, err
	}
	at, err := a.advertisedYet(ctx)
	if err != nil {
		return controlapi.Token{}, store.Token{}, err
	}
	token, kept, err := a.newToken(at, opts)
	if err != nil {
		return controlapi.Token{}, store.Token{}, err
	}
	if err := a.store.CreateToken(ctx, kept); err != nil {
		return controlapi.Token{}, store.Token{}, err
	}
	return token, kept, nil
}

// Tokens returns the enrolment tokens.
func (a *Admin) Tokens(ctx context.Context) ([]store.Token, error) { return a.store.Tokens(ctx) }

func (a *Admin) putRunner(ctx context.Context, tx *store.Tx, r store.Runner, replace bool) error {
	old, err := tx.Runner(ctx, r.Name)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return a.newRunner(ctx, tx, r)
	case err != nil:
		return err
	case !replace && old.RevokedAt.IsZero():
		return fmt.Errorf("there is a Runner %s already; choose another name, or give it new credentials with --force (its old ones end)", r.Name)
	}
	if err := a.revoke(ctx, tx, old); err != nil {
		return err
	}
	return tx.PutRunner(ctx, r)
}

// read reads the broker's part of the credentials from the files.
func (b RunnerBroker) read() (runnerapi.BrokerCredentials, error) {
	var c runnerapi.BrokerCredentials
	for to, file := range map[*string]string{&c.URL: b.URLFile, &c.CA: b.CAFile} {
		if file == "" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return c, fmt.Errorf("what Runners need to reach the broker: %w; correct --broker-url-file, or --runner-broker-url-file or --broker-ca of `pipeops-controlplane serve`", err)
		}
		*to = strings.TrimSpace(string(text))
	}
	return c, nil
}

// Runners returns the Runners.
func (a *Admin) Runners(ctx context.Context) ([]store.Runner, error) { return a.store.Runners(ctx) }

// RevokeRunner revokes a Runner's certificate: at once at the control plane, and at each agent from
// its next heartbeat.
func (a *Admin) RevokeRunner(ctx context.Context, name string) error {
	return a.store.Update(ctx, func(tx *store.Tx) error {
		r, err := findRunner(ctx, tx, name)
		if err != nil {
			return err
		}
		return a.revoke(ctx, tx, r)
	})
}

// revoke revokes a Runner's certificate and makes the change known to the agents.
func (a *Admin) revoke(ctx context.Context, tx *store.Tx, r store.Runner) error {
	if err := tx.RevokeCertificate(ctx, r, a.now()); err != nil {
		return err
	}
	return tx.AddNews(ctx, store.EveryAgent)
}

// Agents returns the agents as they are announced, including revoked ones.
func (a *Admin) Agents(ctx context.Context) ([]announce.Agent, error) {
	stored, err := a.store.Agents(ctx)
	if err != nil {
		return nil, err
	}
	hosts, err := a.store.Hosts(ctx, announce.MaxHosts)
	if err != nil {
		return nil, err
	}
	list := make([]announce.Agent, len(stored))
	for i := range stored {
		list[i] = a.directory(ctx).announced(stored[i])
		list[i].Hosts = hosts[stored[i].ID]
	}
	return list, nil
}

// directory knows the agents' domain once serve has run; before that there are no agents.
func (a *Admin) directory(ctx context.Context) directory {
	at, err := a.Advertised(ctx)
	if err != nil {
		return directory{agentsDomain: DefaultAgentsDomain}
	}
	return directory{agentsDomain: at.AgentsDomain}
}

// Agent returns an agent by name or ID, with its newest events.
func (a *Admin) Agent(ctx context.Context, nameOrID string, events int) (announce.Agent, []announce.Event, error) {
	found, err := findAgent(ctx, a.store, nameOrID)
	if err != nil {
		return announce.Agent{}, nil, err
	}
	told := a.directory(ctx).announced(found)
	if told.Hosts, err = a.store.HostsOf(ctx, found.ID, announce.MaxHosts); err != nil {
		return announce.Agent{}, nil, err
	}
	timeline, err := a.store.Timeline(ctx, found.ID, events)
	return told, timeline, err
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
		return store.Agent{}, fmt.Errorf("there is no agent with the name or ID %q; `pipeops-controlplane agents` lists them", nameOrID)
	}
	if err != nil {
		return store.Agent{}, err
	}
	return found, nil
}

// RevokeAgent revokes an agent and announces that it is gone.
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
	if err != nil {
		return announce.Agent{}, err
	}
	return d.announced(found), nil
}

// RemoveAgent removes a revoked agent: its cluster may register again, as another agent.
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
	if err != nil {
		return announce.Agent{}, err
	}
	return a.directory(ctx).announced(found), nil
}
