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
		Short:             "Remove an App and exactly what it made",
		Long:              "Remove an App and exactly what it made, and wait until its pods are gone.",
		Example:           "  pipeops-runner delete shop web",
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			key := runnerapi.Key{Namespace: namespace, Name: args[1]}
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				if err := t.Delete(ctx, key, write.options()); err != nil {
					return at(t, key.String(), err)
				}
				switch {
				case write.dryRun:
					a.sayDeleted("App "+key.String(), true)
					return nil
				case !wait.wanted():
					a.say("accepted: the deletion of App %s; it goes on in the cluster", key)
					return nil
				}
				return a.untilGone(ctx, t, key, wait.limit)
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

// untilGone waits until an App that was deleted is there no more, and says what holds it.
func (a *app) untilGone(ctx context.Context, t *target, key runnerapi.Key, limit time.Duration) error {
	waitCtx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(gonePause)
	defer ticker.Stop()
	uid, held := "", ""
	for {
		app, err := t.Get(waitCtx, key)
		known := &runnerapi.Error{}
		switch {
		case errors.As(err, &known) && known.Code == runnerapi.CodeNotFound, err == nil && uid != "" && app.UID != uid,
			err == nil && app.Status.WaitingFor == "" && app.Settled(): // another one of that name
			a.sayDeleted("App "+key.String(), false)
			return nil
		case err == nil:
			if now := app.Status.WaitingFor; now != held && now != "" {
				a.say("%s is being deleted; waits for %s", key, cli.Printable(now))
				held = now
			}
			uid = app.UID
		case waitCtx.Err() == nil && (!errors.As(err, &known) || !known.Passing()):
			return at(t, key.String(), err)
		}
		select {
		case <-ticker.C:
		case <-waitCtx.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return &exitError{
				error: fmt.Errorf("%s: %s is not gone after %s: waits for %s", t, key, limit, cli.Printable(held)), code: exitTimeout,
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
