package agent

import (
	"context"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/agent/identity"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
)

// errNoToken is what an agent without identity and token can only say.
var errNoToken = errors.New("AGENT_TOKEN: is not set, and this agent has no identity yet (fix: make a token with `pipeops-controlplane token create` and set AGENT_TOKEN or AGENT_TOKEN_FILE)")

// identify finds the agent's identity, or registers. Afterwards a.current is set.
func (a *Agent) identify(ctx context.Context) error {
	id, err := a.loadIdentity(ctx)
	if err != nil {
		return err
	}
	if id != nil && a.elsewhere(id) {
		a.log.Warn().Str("agent", id.AgentID).Msg("the token is of another control plane than the identity: registering there")
		id = nil
	}
	if id == nil {
		return a.registerAgain(ctx)
	}
	a.adopt(id)
	return nil
}

// registerAgain registers, whatever identity there is.
func (a *Agent) registerAgain(ctx context.Context) error {
	id, err := a.register(ctx)
	if err != nil {
		return err
	}
	a.adopt(id)
	return nil
}

// adopt makes id the agent's identity from now on.
func (a *Agent) adopt(id *identity.Identity) {
	a.current.Store(id)
	a.health.set("identity", stateOK)
}

// loadIdentity reads the stored identity. One that is damaged is reported and
// replaced by registering anew: the same cluster gets the same agent ID.
func (a *Agent) loadIdentity(ctx context.Context) (*identity.Identity, error) {
	var parts map[string][]byte
	err := a.retry(ctx, "read the agent's identity from "+a.store.String(), func() (err error) {
		parts, err = a.store.Load(ctx)
		return err
	}, kube.Passing)
	if err != nil || parts == nil || identity.Pending(parts) {
		return nil, err
	}
	id, err := identity.Decode(parts)
	if err != nil {
		a.log.Error().Err(err).Stringer("store", a.store).Msg("the stored identity is damaged: registering anew")
		return nil, nil
	}
	a.log.Info().Str("agent", id.AgentID).Time("notAfter", id.NotAfter()).Stringer("store", a.store).Msg("identity found")
	return id, nil
}

// elsewhere says whether the operator has pointed the agent to a control plane
// other than the one that its identity is of.
func (a *Agent) elsewhere(id *identity.Identity) bool {
	token, err := controlapi.ParseToken(a.opts.Config.Token)
	return err == nil && token.Fingerprint != "" && !id.HasCA(token.Fingerprint)
}

// register asks for an identity until the control plane answers, one way or
// the other.
func (a *Agent) register(ctx context.Context) (*identity.Identity, error) {
	if a.opts.Config.Token == "" {
		return nil, errNoToken
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
	key, err := a.pendingKey(ctx)
	if err != nil {
		return nil, err
	}
	var answer controlapi.Identity
	err = a.retry(ctx, "register with "+a.opts.Config.ControlPlaneURL, func() error {
		req, err := a.registration(ctx, key)
		if err != nil {
			return err
		}
		answer, err = client.Register(ctx, token, req)
		return err
	}, passing)
	if err != nil {
		return nil, fmt.Errorf("registration: %w", err)
	}
	return a.keep(ctx, key, answer, systemRoots)
}

// pendingKey is the key of a registration that was begun before, or a new one
// that is stored first: whoever dies in the middle asks for the same thing again.
// An identity that is there already is kept until there is another one.
func (a *Agent) pendingKey(ctx context.Context) (key *ecdsa.PrivateKey, err error) {
	err = a.retry(ctx, "keep the agent's key in "+a.store.String(), func() error {
		parts, err := a.store.Load(ctx)
		if err != nil {
			return err
		}
		if identity.Pending(parts) {
			if key, err = identity.DecodeKey(parts); err == nil {
				return nil
			}
		}
		if key, err = identity.NewKey(); err != nil || len(parts) > 0 {
			return err
		}
		if parts, err = identity.EncodeKey(key); err != nil {
			return err
		}
		return a.store.Save(ctx, parts)
	}, kube.Passing)
	return key, err
}

// keep makes an identity of an answer and stores it.
func (a *Agent) keep(ctx context.Context, key *ecdsa.PrivateKey, answer controlapi.Identity, systemRoots bool) (*identity.Identity, error) {
	id, err := identity.New(key, answer, systemRoots)
	if err != nil {
		return nil, fmt.Errorf("the control plane's answer: %w", err)
	}
	parts, err := id.Encode()
	if err != nil {
		return nil, err
	}
	err = a.retry(ctx, "store the agent's identity in "+a.store.String(), func() error {
		return a.store.Save(ctx, parts)
	}, kube.Passing)
	if err != nil {
		return nil, err
	}
	a.log.Info().Str("agent", id.AgentID).Time("notAfter", id.NotAfter()).Msg("identity issued and stored")
	return id, nil
}

func (a *Agent) registration(ctx context.Context, key *ecdsa.PrivateKey) (controlapi.RegisterRequest, error) {
	csr, err := identity.CSR(key)
	if err != nil {
		return controlapi.RegisterRequest{}, err
	}
	uid, err := a.kube.ClusterUID(ctx)
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

// retry does one thing until it succeeds, fails for good or ctx ends. The
// waits grow from one second to thirty, with jitter.
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
		if !sleep(ctx, d) {
			return ctx.Err()
		}
	}
}
