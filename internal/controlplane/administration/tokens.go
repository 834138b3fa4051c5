package administration

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

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
	// Kubernetes makes a token without a secret, for agents of one cluster.
	Kubernetes *store.Kubernetes
}

// Check returns an error for invalid options, before a data directory is made for them.
func (o TokenOptions) Check() error {
	switch {
	case o.Uses < 0:
		return invalid("0 means any number of agents", "--uses: must not be negative")
	case o.TTL < 0:
		return invalid("0 means for ever", "--ttl: must not be negative")
	}
	if err := selectable(o.Labels); err != nil {
		return fmt.Errorf("--label: %w", err)
	}
	return nil
}

// Create creates an enrolment token. Its secret cannot be read again.
func (a *Tokens) Create(ctx context.Context, opts TokenOptions) (controlapi.Token, store.Token, error) {
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
	if err := a.store.Update(ctx, func(tx *store.Tx) error { return tx.CreateToken(ctx, kept) }); err != nil {
		return controlapi.Token{}, store.Token{}, err
	}
	return token, kept, nil
}

// List returns the enrolment tokens.
func (a *Tokens) List(ctx context.Context) ([]store.Token, error) { return a.store.Tokens(ctx) }

// newToken makes a token with a new secret, not stored yet. It carries the control plane's address,
// unless that has never served.
func (a *Tokens) newToken(at datadir.Advertised, opts TokenOptions) (controlapi.Token, store.Token, error) {
	if err := checkKubernetes(opts.Kubernetes, at.API); err != nil {
		return controlapi.Token{}, store.Token{}, err
	}
	if _, err := a.ca.Reload(); err != nil {
		return controlapi.Token{}, store.Token{}, err
	}
	create := controlapi.NewToken
	if opts.Kubernetes != nil {
		create = controlapi.NewPublicToken
	}
	token, err := create(controlapi.Fingerprint(a.ca.Anchor()))
	if err != nil {
		return controlapi.Token{}, store.Token{}, err
	}
	token = token.At(at.API)
	kept := store.Token{
		ID: token.ID, Name: opts.Name, Labels: opts.Labels, Hash: hex.EncodeToString(token.Hash()),
		Approve: opts.Approve, MaxUses: opts.Uses, Lifetime: opts.TTL, CreatedAt: a.now(), Kubernetes: opts.Kubernetes,
	}
	if opts.TTL > 0 {
		kept.ExpiresAt = kept.CreatedAt.Add(opts.TTL)
	}
	return token, kept, nil
}

func noSuchToken(id string) error {
	return missing("`pipeops-controlplane token list` shows their IDs", "there is no token with the ID %q", id)
}

// Rotate creates a token like the one with that ID: with its name, labels, and original
// limits. The old token ends at once, or after the overlap. Registrations with it that wait for
// approval go on waiting. Keys replace those of a token without a secret; empty keeps them.
func (a *Tokens) Rotate(ctx context.Context, id string, overlap time.Duration, keys string) (controlapi.Token, store.Token, error) {
	if overlap < 0 {
		return controlapi.Token{}, store.Token{}, invalid("0 ends the old token at once", "--overlap must not be negative")
	}
	var (
		token controlapi.Token
		kept  store.Token
	)
	at, err := a.advertisedYet(ctx)
	if err != nil {
		return controlapi.Token{}, store.Token{}, err
	}
	err = a.store.Update(ctx, func(tx *store.Tx) error {
		old, err := tx.Token(ctx, id)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return noSuchToken(id)
		case err != nil:
			return err
		case !old.RevokedAt.IsZero():
			return conflict("`pipeops-controlplane token create` makes another", "the token %s is revoked", id)
		case old.RotatedTo != "":
			return conflict("rotate its successor", "the token %s was rotated already; its successor is %s", id, old.RotatedTo)
		case keys != "" && old.Kubernetes == nil:
			return invalid("leave it out", "--kubernetes-jwks: the token %s has a secret, and trusts no cluster", id)
		case keys != "":
			old.Kubernetes.Keys = keys
		}
		token, kept, err = a.newToken(at, TokenOptions{
			Name: old.Name, Labels: old.Labels, Uses: old.MaxUses, TTL: old.Lifetime, Approve: old.Approve, Kubernetes: old.Kubernetes,
		})
		if err != nil {
			return err
		}
		if err := tx.CreateToken(ctx, kept); err != nil {
			return err
		}
		return tx.RotateToken(ctx, id, kept.ID, a.now().Add(overlap))
	})
	if err != nil { // then nothing was stored, not even the token that was made
		return controlapi.Token{}, store.Token{}, err
	}
	return token, kept, nil
}

// Revoke revokes a token, named by its ID, and ends its pending registrations. Agents that
// registered with it stay.
func (a *Tokens) Revoke(ctx context.Context, id string) error {
	return a.store.Update(ctx, func(tx *store.Tx) error {
		err := tx.RevokeToken(ctx, id, a.now())
		if errors.Is(err, store.ErrNotFound) {
			return noSuchToken(id)
		}
		if err != nil {
			return err
		}
		return tx.DeleteEnrolmentsOf(ctx, id)
	})
}
