package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newDelete(a *app) *cobra.Command {
	var namespace string
	var write writing
	var wait waiting
	cmd := &cobra.Command{
		Use:               "delete AGENT NAME",
		Short:             "Delete an App and exactly what it created",
		Long:              "Delete an App and exactly what it created, and wait until its pods are gone.",
		Example:           "  pipeops-runner delete shop web",
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			key := runnerapi.Key{Namespace: namespace, Name: args[1]}
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				if err := t.Delete(ctx, key, write.options()); err != nil {
					return at(t, key.String(), err)
				}
				return a.deleted(ctx, t, "App", key, &write, &wait, appLook(key))
			})
		},
	}
	namespaceFlag(cmd, &namespace)
	wait.add(cmd, defaultWait)
	write.addWriting(cmd)
	return cmd
}

// gonePause is between looks at an App that is being deleted.
const gonePause = time.Second

// goingState is how something stands that was deleted.
type goingState struct {
	uid     string
	going   bool // it is there, and being deleted
	settled bool // it is there, and is not
	waits   string
}

// look reads how something stands that was deleted.
type look func(ctx context.Context, t *target) (goingState, error)

func appLook(key runnerapi.Key) look {
	return func(ctx context.Context, t *target) (goingState, error) {
		app, err := t.Get(ctx, key)
		return goingState{
			uid: app.UID, going: app.Status.Phase == runnerapi.PhaseDeleting, settled: app.Settled(), waits: app.Status.WaitingFor,
		}, err
	}
}

// deleted completes a command that deletes an App, or a type of App: it waits, if requested, until
// that is gone.
func (a *app) deleted(ctx context.Context, t *target, kind string, key runnerapi.Key, write *writing, wait *waiting, see look) error {
	what := kind + " " + key.String()
	switch {
	case write.dryRun:
		a.sayDeleted(what, true)
		return nil
	case !wait.wanted():
		a.say("accepted: the deletion of %s; it goes on in the cluster", what)
		return nil
	}
	return a.untilGone(ctx, t, what, wait.limit, see)
}

// untilGone waits until the deleted object is gone, and reports what holds it.
func (a *app) untilGone(ctx context.Context, t *target, what string, limit time.Duration, see look) error {
	waitCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(gonePause)
	defer ticker.Stop()
	uid, held := "", ""
	for {
		now, err := see(waitCtx, t)
		known := &runnerapi.Error{}
		switch {
		case errors.As(err, &known) && known.Code == runnerapi.CodeNotFound, err == nil && uid != "" && now.uid != uid,
			err == nil && !now.going && now.settled: // another one of that name
			a.sayDeleted(what, false)
			return nil
		case err == nil:
			if now.going && now.waits != held && now.waits != "" {
				a.say("%s is being deleted; waits for %s", what, cli.Printable(now.waits))
				held = now.waits
			}
			uid = now.uid
		case waitCtx.Err() == nil && (!errors.As(err, &known) || !known.Passing()):
			return at(t, what, err)
		}
		select {
		case <-ticker.C:
		case <-waitCtx.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return &exitError{
				error: fmt.Errorf("%s: %s is not gone after %s: waits for %s", t, what, limit, cli.Printable(held)), code: exitTimeout,
				fix: "it goes on in the cluster; a pod on a lost node goes with its node (kubectl get pods -o wide)",
			}
		}
	}
}

func (a *app) sayDeleted(what string, dryRun bool) {
	if dryRun {
		a.say("dry run: %s would be deleted; nothing was changed", what)
		return
	}
	a.say("deleted: %s", what)
}
