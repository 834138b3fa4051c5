package administration

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// Sessions lists the open sessions in the console, by operator, the newest of each first.
func (a *Operators) Sessions(ctx context.Context) ([]store.ConsoleSession, error) {
	return a.store.ConsoleSessions(ctx, a.now())
}

// EndSessions ends the sessions of an operator in the console, and the codes for further ones. It
// returns the number of sessions.
func (a *Operators) EndSessions(ctx context.Context, operator string) (ended int, err error) {
	err = a.store.Update(ctx, func(tx *store.Tx) error {
		if ended, err = tx.EndConsoleSessions(ctx, operator, a.now()); err == nil && ended == 0 {
			err = missing("`pipeops-controlplane operator session list` shows who has one", "operator %q has no session in the console", operator)
		}
		return err
	})
	return ended, err
}
