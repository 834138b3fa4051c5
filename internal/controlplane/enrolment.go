package controlplane

import (
	"context"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

const fixEnrol = "make a new one with `pipeops-controlplane token create`"

// CheckToken implements controlapi.Backend. It tells whoever holds the secret
// what Register would, and others nothing: 256 random bits need no other guard
// against guessing than the comparison in constant time.
func (r *registry) CheckToken(ctx context.Context, text string) (controlapi.TokenState, error) {
	token, err := readToken(text)
	if err != nil {
		return controlapi.TokenState{}, err
	}
	known, err := validToken(ctx, r.store, token, r.cfg.Now())
	if err != nil {
		return controlapi.TokenState{}, err
	}
	state := controlapi.TokenState{ID: known.ID, ExpiresAt: known.ExpiresAt, Tunnel: r.tunnelEndpoint()}
	if known.MaxUses > 0 {
		left := known.MaxUses - known.Uses
		if left <= 0 {
			return controlapi.TokenState{}, usedUp(known)
		}
		state.UsesLeft = &left
	}
	return state, nil
}

func readToken(text string) (controlapi.Token, error) {
	token, err := controlapi.ParseToken(text)
	if err != nil {
		return token, controlapi.Errorf(controlapi.CodeTokenUnknown,
			"copy the whole line that `pipeops-controlplane token create` printed", "the enrolment token is not one: it is cut short or mistyped")
	}
	return token, nil
}

// tokens is where tokens are looked up: the store, or a transaction in it.
type tokens interface {
	Token(ctx context.Context, id string) (store.Token, error)
}

// validToken checks all of a token but its uses. The answer to a wrong secret is
// that to an unknown token.
func validToken(ctx context.Context, in tokens, token controlapi.Token, now time.Time) (store.Token, error) {
	known, err := in.Token(ctx, token.ID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return known, err
	}
	same := subtle.ConstantTimeCompare([]byte(known.Hash), []byte(hex.EncodeToString(token.Hash()))) == 1
	switch {
	case err != nil || !same:
		return known, controlapi.Errorf(controlapi.CodeTokenUnknown, fixEnrol, "the control plane does not know this enrolment token")
	case !known.RevokedAt.IsZero():
		return known, controlapi.Errorf(controlapi.CodeTokenRevoked, fixEnrol, "the enrolment token %s was revoked at %s", known.ID, known.RevokedAt.Format(time.RFC3339))
	case !known.ExpiresAt.IsZero() && now.After(known.ExpiresAt):
		return known, controlapi.Errorf(controlapi.CodeTokenExpired, fixEnrol, "the enrolment token %s expired at %s", known.ID, known.ExpiresAt.Format(time.RFC3339))
	}
	return known, nil
}

func usedUp(t store.Token) error {
	return controlapi.Errorf(controlapi.CodeTokenUsedUp, fixEnrol+", with --uses for more",
		"the enrolment token %s has been used %d times, which is all it is good for", t.ID, t.Uses)
}
