package controlplane

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// newToken makes a token with a new secret, not stored yet. It carries the control plane's address,
// unless that has never served.
func (a *Admin) newToken(at Advertised, opts TokenOptions) (controlapi.Token, store.Token, error) {
	if _, err := a.ca.Reload(); err != nil {
		return controlapi.Token{}, store.Token{}, err
	}
	token, err := controlapi.NewToken(controlapi.Fingerprint(a.ca.Anchor()))
	if err != nil {
		return controlapi.Token{}, store.Token{}, err
	}
	token = token.At(at.API)
	kept := store.Token{
		ID: token.ID, Name: opts.Name, Labels: opts.Labels, Hash: hex.EncodeToString(token.Hash()),
		Approve: opts.Approve, MaxUses: opts.Uses, Lifetime: opts.TTL, CreatedAt: a.now(),
	}
	if opts.TTL > 0 {
		kept.ExpiresAt = kept.CreatedAt.Add(opts.TTL)
	}
	return token, kept, nil
}

func noSuchToken(id string) error {
	return fmt.Errorf("there is no token with the ID %q; `pipeops-controlplane token list` shows their IDs", id)
}

// RotateToken creates a token like the one with that ID: with its name, labels, and original
// limits. The old token ends at once, or after the overlap. Registrations with it that wait for
// approval go on waiting.
func (a *Admin) RotateToken(ctx context.Context, id string, overlap time.Duration) (controlapi.Token, store.Token, error) {
	if overlap < 0 {
		return controlapi.Token{}, store.Token{}, errors.New("--overlap must not be negative; 0 ends the old token at once")
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
			return fmt.Errorf("the token %s is revoked; `pipeops-controlplane token create` makes another", id)
		case old.RotatedTo != "":
			return fmt.Errorf("the token %s was rotated already; its successor is %s", id, old.RotatedTo)
		}
		token, kept, err = a.newToken(at, TokenOptions{
			Name: old.Name, Labels: old.Labels, Uses: old.MaxUses, TTL: old.Lifetime, Approve: old.Approve,
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

// RevokeToken revokes a token, named by its ID, and ends its pending registrations. Agents that
// registered with it stay.
func (a *Admin) RevokeToken(ctx context.Context, id string) error {
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
