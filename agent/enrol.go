package agent

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/span"
)

// errNoToken is the error of an agent without identity and token.
var errNoToken = errors.New("AGENT_TOKEN: is not set, and this agent has no identity that the control plane knows")

// enrolment gets the agent's first identity: by its token, with the approval of the operator if
// that is needed.
type enrolment struct {
	opts    Options
	now     func() time.Time
	log     zerolog.Logger
	health  *health
	kube    *kube.Client
	cluster *clusterID
	store   *identityStore
	current *currentIdentity
	clients *clients
}

// identify loads the agent's identity, or registers. It sets the current one.
func (e *enrolment) identify(ctx context.Context) error {
	id, err := e.store.newer(ctx, nil)
	switch {
	case err != nil:
		return err
	case id == nil:
		return e.registerAgain(ctx, nil)
	case e.elsewhere(id):
		e.log.Warn().Str("agent", id.AgentID).Msg("the token belongs to another control plane than the identity; registering there")
		return e.registerAgain(ctx, id)
	}
	e.log.Info().Str("agent", id.AgentID).Time("notAfter", id.NotAfter()).Stringer("store", e.store).Msg("loaded the stored identity")
	e.current.adopt(id)
	return nil
}

// registerAgain replaces a useless identity: by one that another replica has got meanwhile, or by
// registering.
func (e *enrolment) registerAgain(ctx context.Context, old *identity.Identity) error {
	id, err := e.store.newer(ctx, old)
	switch {
	case err == nil && id == nil:
		id, err = e.register(ctx, old)
	case err == nil:
		e.store.logAnothers(id)
	}
	if err != nil {
		return err
	}
	e.current.adopt(id)
	return nil
}

// noNamespaces stands for no first namespaces.
const noNamespaces = "none"

// makeNamespaces creates the first namespaces for Apps. An agent that has an identity makes none,
// so that one that is deleted stays away.
func (e *enrolment) makeNamespaces(ctx context.Context) {
	if len(e.opts.Config.Namespaces) > 0 || slices.Equal(e.opts.Config.FirstNamespaces, []string{noNamespaces}) {
		return
	}
	for _, name := range e.opts.Config.FirstNamespaces {
		if objectmeta.ReservedNamespace(name, e.opts.Config.Namespace) {
			continue // the default has a name that the agent's own namespace has
		}
		if err := e.kube.Namespaces().CreateMissing(ctx, name); err != nil {
			e.log.Warn().Err(err).Str("namespace", name).Msg("failed to create the namespace; a Runner can create it")
		}
	}
}

// ended reports whether the agent's identity is of no more use: the control plane finally refuses
// it, or does not accept the certificate, and the operator has given the agent a new token.
func (e *enrolment) ended(refusal error) bool {
	if controlapi.Refused(refusal) {
		return true
	}
	token, err := controlapi.ParseToken(e.opts.Config.CurrentToken())
	return err == nil && token.ID != e.current.Load().Token && problem.Is(refusal, controlapi.CodeCertificateUnknown)
}

// elsewhere reports whether the operator has pointed the agent to a control plane other than the
// one in its identity.
func (e *enrolment) elsewhere(id *identity.Identity) bool {
	token, err := controlapi.ParseToken(e.opts.Config.CurrentToken())
	return err == nil && token.Fingerprint != "" && !id.HasCA(token.Fingerprint)
}

// register requests an identity until the control plane gives a final answer.
func (e *enrolment) register(ctx context.Context, old *identity.Identity) (*identity.Identity, error) {
	text := e.opts.Config.CurrentToken()
	if text == "" {
		return nil, e.noToken()
	}
	token, err := controlapi.ParseToken(text)
	if err != nil {
		return nil, fmt.Errorf("AGENT_TOKEN: %w", err)
	}
	if _, err := e.opts.Config.Prove(token); err != nil { // later errors pass
		return nil, err
	}
	client, systemRoots, err := e.clients.firstContact(token)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return e.store.obtain(ctx, old, func(ctx context.Context, key *ecdsa.PrivateKey) (*identity.Identity, error) {
		var answer controlapi.Identity
		err := e.untilDecided(ctx, func() error {
			return e.store.retry(ctx, "register with "+e.opts.Config.ControlPlaneURL, func() error {
				req, err := e.registration(ctx, key)
				if err != nil {
					return err
				}
				proven, err := e.opts.Config.Prove(token)
				if err != nil {
					return err
				}
				traced, done := span.Begin(ctx, e.opts.Tracer, "register")
				answer, err = client.Register(traced, proven, req)
				done(err)
				return err
			}, controlapi.Passing)
		})
		if err != nil {
			return nil, fmt.Errorf("registration: %w", err)
		}
		if old == nil { // before the identity is stored, after which nothing would make them
			e.makeNamespaces(ctx)
		}
		return identity.New(key, answer, identity.Registration{SystemRoots: systemRoots, Token: token.ID})
	})
}

func (e *enrolment) registration(ctx context.Context, key *ecdsa.PrivateKey) (controlapi.RegisterRequest, error) {
	csr, err := identity.CSR(key)
	if err != nil {
		return controlapi.RegisterRequest{}, err
	}
	uid, err := e.cluster.learn(ctx)
	if err != nil {
		return controlapi.RegisterRequest{}, err
	}
	facts, err := e.kube.Cluster().Facts(ctx)
	if err != nil {
		return controlapi.RegisterRequest{}, err
	}
	return controlapi.RegisterRequest{
		Name: e.opts.Config.ClusterName, ClusterUID: uid, CSR: csr, Clock: e.now(),
		AgentVersion: e.opts.Version, RunnerAPIVersion: runnerAPIVersion,
		KubernetesVersion: facts.KubernetesVersion, Distribution: facts.Distribution, Provider: facts.Provider,
		Capacity: capacity(facts),
	}, nil
}

// noToken returns errNoToken and adds how to give a token to an agent that runs as this one does.
func (e *enrolment) noToken() error {
	c := e.opts.Config
	if c.TokenSecret == "" {
		return fmt.Errorf("%w (fix: make a token with `pipeops-controlplane token create`, set AGENT_TOKEN or AGENT_TOKEN_FILE, and start the agent again)", errNoToken)
	}
	return fmt.Errorf("%w (fix: make a token with `pipeops-controlplane token create`, put it into Secret %s as %s, and restart the agent: "+
		"kubectl -n %s rollout restart deployment/pipeops-agent)", errNoToken, c.TokenSecret, kube.EnrolmentKey, c.Namespace)
}
