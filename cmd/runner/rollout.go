package main

import (
	"context"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// rollout is what commands share that change an App and wait for the outcome.
type rollout struct {
	*app
	out       cli.Output
	wait      waiting
	namespace string
	writing
}

func (r *rollout) add(cmd *cobra.Command) {
	r.out.Add(cmd)
	r.wait.add(cmd, defaultWait)
	namespaceFlag(cmd, &r.namespace)
	r.addWriting(cmd)
}

// options gives the command an Idempotency-Key, because it may not be safe to repeat without one.
func (r *rollout) options() runnerapi.WriteOptions {
	if r.key == "" {
		r.key = uuid.NewString()
	}
	return r.writing.options()
}

func (r *rollout) run(ctx context.Context, agent, name string,
	command func(context.Context, *target, runnerapi.Key, runnerapi.WriteOptions) (runnerapi.App, error),
) error {
	return r.on(ctx, agent, func(ctx context.Context, t *target) error {
		key := runnerapi.Key{Namespace: r.namespace, Name: name}
		app, err := command(ctx, t, key, r.options())
		if err != nil {
			return at(t, key.String(), err)
		}
		if r.dryRun {
			r.say("dry run: %s would be taken; nothing was changed", key)
			return r.printApp(app, &r.out)
		}
		return r.outcome(ctx, t, app, &r.wait, &r.out)
	})
}
