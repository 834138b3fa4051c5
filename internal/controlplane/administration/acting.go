package administration

import (
	"context"
	"errors"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/authn"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// Acting lists the operators who act as Runners.
func (a *Operators) Acting(ctx context.Context) ([]store.ActingOperator, error) {
	return a.store.ActingOperators(ctx)
}

// ActAs has an operator act as a Runner in the console, from the next call.
func (a *Operators) ActAs(ctx context.Context, operator, runner string) error {
	return a.store.Update(ctx, func(tx *store.Tx) error {
		if !strings.HasPrefix(operator, authn.OpenIDPrefix) { // those exist in their session alone
			known, err := tx.Operator(ctx, operator)
			if errors.Is(err, store.ErrNotFound) || err == nil && !known.RevokedAt.IsZero() {
				return missing("`pipeops-controlplane operator list` shows them; a person who signs in by OpenID Connect is "+authn.OpenIDPrefix+"NAME", "there is no operator %q", operator)
			}
			if err != nil {
				return err
			}
		}
		found, err := findRunner(ctx, tx, runner)
		if err == nil && !found.RevokedAt.IsZero() {
			err = conflict("choose another Runner", "Runner %s was revoked", runner)
		}
		if err != nil {
			return err
		}
		return tx.PutActingOperator(ctx, store.ActingOperator{Operator: operator, Runner: runner, SetAt: a.now()})
	})
}

// ActNoMore has an operator act as no Runner.
func (a *Operators) ActNoMore(ctx context.Context, operator string) error {
	return a.store.Update(ctx, func(tx *store.Tx) error {
		was, err := tx.DeleteActingOperator(ctx, operator)
		if err == nil && !was {
			err = missing("`pipeops-controlplane operator runner list` shows who does", "operator %q acts as no Runner", operator)
		}
		return err
	})
}
