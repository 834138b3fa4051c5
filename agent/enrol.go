package agent

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/internal/span"
)

// errNoToken is the error of an agent without identity and token.
var errNoToken = errors.New("AGENT_TOKEN: is not set, and this agent has no identity that the control plane knows")

// identify loads the agent's identity, or registers. It sets a.current.
func (a *Agent) identify(ctx context.Context) error {
	id, err := a.newer(ctx, nil)
	switch {
	case err != nil:
		return err
	case id == nil:
		return a.registerAgain(ctx, nil)
	case a.elsewhere(id):
		a.log.Warn().Str("agent", id.AgentID).Msg("the token is of another control plane than the identity: registering there")
		return a.registerAgain(ctx, id)
	}
	a.log.Info().Str("agent", id.AgentID).Time("notAfter", id.NotAfter()).Stringer("store", a.store).Msg("identity found")
	a.adopt(id)
	return nil
}

// registerAgain replaces a useless identity: by one that another replica has got meanwhile, or by
// registering.
func (a *Agent) registerAgain(ctx context.Context, old *identity.Identity) error {
	id, err := a.newer(ctx, old)
	if err == nil && id == nil {
		id, err = a.register(ctx, old)
	}
	if err != nil {
		return err
	}
	a.adopt(id)
	return nil
}

// adopt makes id the agent's identity from now on.
func (a *Agent) adopt(id *identity.Identity) {
	a.current.Store(id)
	select {
	case a.fresh <- struct{}{}:
	default: // the previous signal is still unread
	}
	a.health.set("identity", stateOK)
}

// elsewhere reports whether the operator has pointed the agent to a control plane other than the
// one in its identity.
func (a *Agent) elsewhere(id *identity.Identity) bool {
	token, err := controlapi.ParseToken(a.opts.Config.Token)
	return err == nil && token.Fingerprint != "" && !id.HasCA(token.Fingerprint)
}

// register requests an identity until the control plane gives a final answer.
func (a *Agent) register(ctx context.Context, old *identity.Identity) (*identity.Identity, error) {
	if a.opts.Config.Token == "" {
		return nil, a.noToken()
	}
	token, err := controlapi.ParseToken(a.opts.Config.Token)
	if err != nil {
		return nil, fmt.Errorf("AGENT_TOKEN: %w", err)
	}
	client, systemRoots, err := a.firstContact(token)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return a.obtain(ctx, old, func(ctx context.Context, key *ecdsa.PrivateKey) (*identity.Identity, error) {
		var answer controlapi.Identity
		err := a.untilDecided(ctx, func() error {
			return a.retry(ctx, "register with "+a.opts.Config.ControlPlaneURL, func() error {
				req, err := a.registration(ctx, key)
				if err != nil {
					return err
				}
				traced, done := span.Begin(ctx, a.opts.Tracer, "register")
				answer, err = client.Register(traced, token, req)
				done(err)
				return err
			}, passing)
		})
		if err != nil {
			return nil, fmt.Errorf("registration: %w", err)
		}
		return identity.New(key, answer, systemRoots)
	})
}

func (a *Agent) registration(ctx context.Context, key *ecdsa.PrivateKey) (controlapi.RegisterRequest, error) {
	csr, err := identity.CSR(key)
	if err != nil {
		return controlapi.RegisterRequest{}, err
	}
	uid, err := a.learnCluster(ctx)
	if err != nil {
		return controlapi.RegisterRequest{}, err
	}
	facts, err := a.kube.Facts(ctx)
	if err != nil {
		return controlapi.RegisterRequest{}, err
	}
	return controlapi.RegisterRequest{
		Name: a.opts.Config.ClusterName, ClusterUID: uid, CSR: csr, Clock: a.now(),
		AgentVersion: a.opts.Version, RunnerAPIVersion: runnerAPIVersion,
		KubernetesVersion: facts.KubernetesVersion, Distribution: facts.Distribution, Provider: facts.Provider,
		Capacity: capacity(facts),
	}, nil
}

// retry calls do until it succeeds, fails for good or ctx ends. The waits grow from one second to
// thirty, with jitter.
func (a *Agent) retry(ctx context.Context, what string, do func() error, passing func(error) bool) error {
	for wait := newBackoff(); ; {
		err := do()
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		if !passing(err) {
			return err
		}
		d := wait.NextBackOff()
		a.health.set("identity", what+": "+err.Error())
		a.log.Warn().Err(err).Dur("retryIn", d.Round(time.Millisecond)).Msg("could not " + what)
		if !retry.Wait(ctx, d) {
			return ctx.Err()
		}
	}
}
