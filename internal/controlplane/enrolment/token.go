package enrolment

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

// CheckToken implements controlapi.Backend. A client with the secret learns what Register would
// return; other clients learn nothing. For 256 random bits, a comparison in constant time is enough
// against guessing.
func (r *Registrar) CheckToken(ctx context.Context, text string, check controlapi.TokenCheck) (controlapi.TokenState, error) {
	token, err := readToken(text)
	if err != nil {
		return controlapi.TokenState{}, err
	}
	if _, err := r.prove(ctx, token); err != nil {
		return controlapi.TokenState{}, err
	}
	known, err := knownToken(ctx, r.store, token)
	if err != nil {
		return controlapi.TokenState{}, err
	}
	now := r.cfg.Now()
	state := controlapi.TokenState{ID: known.ID, ExpiresAt: endOf(known), Tunnel: r.cfg.Tunnel, Approval: known.Approve}
	if state.Enrolment, err = enrolmentState(ctx, r.store, known, check.Key, now); err != nil {
		return controlapi.TokenState{}, err
	}
	if state.Enrolment == nil || !known.RevokedAt.IsZero() {
		if ended := endedToken(known, now); ended != nil {
			return controlapi.TokenState{}, ended
		}
	}
	if known.MaxUses > 0 {
		left := max(0, known.MaxUses-known.Uses)
		state.UsesLeft = &left
	}
	return state, nil
}

func readToken(text string) (controlapi.Token, error) {
	token, err := controlapi.ParseCredential(text)
	if err != nil {
		return controlapi.Token{}, controlapi.Errorf(controlapi.CodeTokenUnknown,
			"copy the whole line that `pipeops-controlplane token create` printed", "the enrolment token is not one: it is cut short or mistyped")
	}
	return token, nil
}

// tokens is where tokens are looked up: the store, or a transaction in it.
type tokens interface {
	Token(ctx context.Context, id string) (store.Token, error)
}

// knownToken returns a token by its secret, whether or not it is still valid. The answer to a wrong
// secret is the same as to an unknown token. One without a secret needs Registrar.prove besides.
func knownToken(ctx context.Context, in tokens, token controlapi.Token) (store.Token, error) {
	known, err := in.Token(ctx, token.ID)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return store.Token{}, err
	}
	same := subtle.ConstantTimeCompare([]byte(known.Hash), []byte(hex.EncodeToString(token.Hash()))) == 1
	if known.Kubernetes != nil {
		same = token.Public()
	}
	if err != nil || !same {
		return store.Token{}, controlapi.Errorf(controlapi.CodeTokenUnknown, fixEnrol, "the control plane does not know this enrolment token")
	}
	return known, nil
}

// endedToken returns why no new agent may register with a token; nil if one may.
func endedToken(t store.Token, now time.Time) error {
	switch t.State(now) {
	case store.TokenRevoked:
		return controlapi.Errorf(controlapi.CodeTokenRevoked, fixEnrol, "the enrolment token %s was revoked at %s", t.ID, t.RevokedAt.Format(time.RFC3339))
	case store.TokenRotated:
		return controlapi.Errorf(controlapi.CodeTokenRotated, "use the token that came in its place, or "+fixEnrol,
			"the enrolment token %s was rotated and has ended at %s; %s came in its place", t.ID, t.RotatedAt.Format(time.RFC3339), t.RotatedTo)
	case store.TokenExpired:
		return controlapi.Errorf(controlapi.CodeTokenExpired, fixEnrol, "the enrolment token %s expired at %s", t.ID, t.ExpiresAt.Format(time.RFC3339))
	case store.TokenUsedUp:
		return controlapi.Errorf(controlapi.CodeTokenUsedUp, fixEnrol+", with --uses for more",
			"the enrolment token %s has been used %d times, which is all it is good for", t.ID, t.Uses)
	}
	return nil
}

// endOf returns when a token expires; zero for never.
func endOf(t store.Token) time.Time {
	if t.RotatedTo != "" && (t.ExpiresAt.IsZero() || t.RotatedAt.Before(t.ExpiresAt)) {
		return t.RotatedAt
	}
	return t.ExpiresAt
}
