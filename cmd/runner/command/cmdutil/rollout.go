package cmdutil

import (
	"context"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Rollout is what commands share that change an App and wait for the outcome.
type Rollout struct {
	*CLI
	Out       cli.Output
	Wait      Waiting
	Namespace string
	Fleet     Fleet
	Writing
}

// Add adds the flags.
func (r *Rollout) Add(cmd *cobra.Command) {
	r.Out.Add(cmd)
	r.Wait.Add(cmd, DefaultWait)
	NamespaceFlag(cmd, &r.Namespace)
	r.AddWriting(cmd)
	r.Fleet.Add(cmd)
}

// Options gives the command an Idempotency-Key, because it may not be safe to repeat without one.
func (r *Rollout) Options() runnerapi.WriteOptions {
	if r.Key == "" {
		r.Key = uuid.NewString()
	}
	return r.Writing.Options()
}

// Run sends a command about an App, and waits for its outcome if asked to.
func (r *Rollout) Run(ctx context.Context, agent, name string,
	command func(context.Context, *Target, runnerapi.Key, runnerapi.WriteOptions) (runnerapi.App, error),
) error {
	opts := r.Options()
	return r.Fleet.Each(ctx, r.CLI, agent, &r.Out, func(ctx context.Context, a *CLI, t *Target) error {
		key := runnerapi.Key{Namespace: r.Namespace, Name: name}
		app, err := command(ctx, t, key, opts)
		if err != nil {
			return At(t, key.String(), err)
		}
		if r.DryRun {
			a.Say("dry run: %s would be accepted; nothing was changed", key)
			if r.Out.Table() { // they are those of the spec that runs
				app.Status.URLs, app.Status.PublicURLs, app.Status.Conditions = nil, nil, nil
			}
			return a.printApp(app, &r.Out)
		}
		return a.Outcome(ctx, t, app, &r.Wait, &r.Out)
	})
}
