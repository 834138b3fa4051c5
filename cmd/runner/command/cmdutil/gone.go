package cmdutil

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// GonePause is between looks at an App that is being deleted.
const GonePause = time.Second

// GoingState is how something stands that was deleted.
type GoingState struct {
	Uid     string
	Going   bool // it is there, and being deleted
	Settled bool // it is there, and is not
	Waits   string
}

// Look reads how something stands that was deleted.
type Look func(ctx context.Context, t *Target) (GoingState, error)

// Deleted completes a command that deletes an App, or a type of App: it waits, if requested, until
// that is gone.
func (a *CLI) Deleted(ctx context.Context, t *Target, kind string, key runnerapi.Key, write *Writing, wait *Waiting, see Look) error {
	what := kind + " " + key.String()
	switch {
	case write.DryRun:
		a.SayDeleted(what, true)
		return nil
	case !wait.Wanted():
		a.Say("accepted: the deletion of %s; it continues in the cluster", what)
		return nil
	}
	return a.untilGone(ctx, t, what, wait.Limit, see)
}

// untilGone waits until the deleted object is gone, and reports what holds it.
func (a *CLI) untilGone(ctx context.Context, t *Target, what string, limit time.Duration, see Look) error {
	waitCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(GonePause)
	defer ticker.Stop()
	uid, held := "", ""
	for {
		now, err := see(waitCtx, t)
		known := &runnerapi.Error{}
		switch {
		case errors.As(err, &known) && known.Code == runnerapi.CodeNotFound, err == nil && uid != "" && now.Uid != uid,
			err == nil && !now.Going && now.Settled: // another one of that name
			a.SayDeleted(what, false)
			return nil
		case err == nil:
			if now.Going && now.Waits != held && now.Waits != "" {
				a.Say("%s is being deleted; waits for %s", what, cli.Printable(now.Waits))
				held = now.Waits
			}
			uid = now.Uid
		case waitCtx.Err() == nil && (!errors.As(err, &known) || !known.Passing()):
			return At(t, what, err)
		}
		select {
		case <-ticker.C:
		case <-waitCtx.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return &ExitError{
				Err: fmt.Errorf("%s: %s is not gone after %s: waits for %s", t, what, limit, cli.Printable(held)), Code: ExitTimeout,
				Fix: "it continues in the cluster; a pod on a lost node goes with its node (kubectl get pods -o wide)",
			}
		}
	}
}
