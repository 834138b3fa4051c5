// Package acting lets operators act as Runners: it calls agents as a Runner does, with a
// certificate of that Runner that names the operator and never leaves the memory of the control
// plane.
package acting

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

const (
	// certificateTTL is how long a certificate is valid.
	certificateTTL = 10 * time.Minute
	// certificateLeft is how much of that a certificate has left when it is replaced.
	certificateLeft = 5 * time.Minute
	// patience is how long to go on trying while an agent cannot be reached.
	patience = 10 * time.Second
)

// Config is what acting as a Runner needs.
type Config struct {
	Store       *store.Store
	CA          *ca.CA
	TrustDomain string
	// AgentsDomain follows an agent's ID in its name.
	AgentsDomain string
	// Edge is the host:port of an edge that this process reaches.
	Edge string
	Now  func() time.Time
}

// Actors are the operators who act as Runners.
type Actors struct {
	cfg Config

	mu     sync.Mutex
	issued map[string]issued // by operator
}

// issued is a certificate of an operator who acts as a Runner.
type issued struct {
	runner      store.Runner
	certificate *tls.Certificate
	roots       *x509.CertPool
}

// New returns the operators who act as Runners.
func New(cfg Config) *Actors { return &Actors{cfg: cfg, issued: map[string]issued{}} }

// Runner returns the Runner as which an operator acts now.
func (a *Actors) Runner(ctx context.Context, operator string) (store.Runner, error) {
	as, err := a.cfg.Store.ActingOperator(ctx, operator)
	if errors.Is(err, store.ErrNotFound) {
		return store.Runner{}, problem.Errorf(problem.Conflict, "have an admin run `pipeops-controlplane operator runner set "+operator+" RUNNER`",
			"operator %s acts as no Runner", operator)
	}
	if err != nil {
		return store.Runner{}, err
	}
	runner, err := a.cfg.Store.Runner(ctx, as.Runner)
	if err == nil && !runner.RevokedAt.IsZero() {
		err = problem.Errorf(problem.Conflict, "have an admin choose another one with `pipeops-controlplane operator runner set "+operator+" RUNNER`",
			"operator %s acts as Runner %s, which was revoked", operator, as.Runner)
	}
	return runner, err
}

// Client returns a client of an agent for an operator. The agent decides what the Runner may do.
// Close it in the end.
func (a *Actors) Client(ctx context.Context, operator, agentID string) (*client.Client, error) {
	first, err := a.certificate(ctx, operator)
	if err != nil {
		return nil, err
	}
	return client.New(client.Config{
		AgentID: agentID, ServerName: agentID + "." + a.cfg.AgentsDomain, EdgeAddresses: []string{a.cfg.Edge}, TrustDomain: a.cfg.TrustDomain,
		Roots: first.roots, Patience: patience, UserAgent: "pipeops-controlplane",
		Certificate: func() (*tls.Certificate, error) { // a connection may begin long after the client
			now, err := a.certificate(context.WithoutCancel(ctx), operator)
			return now.certificate, err
		},
	})
}

// certificate returns a certificate of the Runner as which an operator acts. A changed or revoked
// Runner has no further use of the former one.
func (a *Actors) certificate(ctx context.Context, operator string) (issued, error) {
	runner, err := a.Runner(ctx, operator)
	if err != nil {
		return issued{}, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	kept, has := a.issued[operator]
	if has && kept.runner.Name == runner.Name && kept.runner.Serial == runner.Serial && kept.certificate.Leaf.NotAfter.Sub(a.cfg.Now()) > certificateLeft {
		return kept, nil
	}
	for name, old := range a.issued {
		if !a.cfg.Now().Before(old.certificate.Leaf.NotAfter) {
			delete(a.issued, name)
		}
	}
	if kept, err = a.issue(operator, runner); err == nil {
		a.issued[operator] = kept
	}
	return kept, err
}

func (a *Actors) issue(operator string, runner store.Runner) (issued, error) {
	extensions, err := credentials.Extensions(runner.Agents, operator)
	if err != nil {
		return issued{}, err
	}
	if _, err := a.cfg.CA.Reload(); err != nil {
		return issued{}, err
	}
	made, key, err := a.cfg.CA.Client(runner.Name, credentials.RunnerURI(a.cfg.TrustDomain, runner.Name), certificateTTL, "operator "+operator+" acts as a Runner", extensions...)
	if err != nil {
		return issued{}, err
	}
	pair, err := tls.X509KeyPair([]byte(made.Certificate), key)
	if err != nil {
		return issued{}, err
	}
	return issued{runner, &pair, a.cfg.CA.Pool()}, nil
}
