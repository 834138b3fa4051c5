package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

func newCARotate(a *app) *cobra.Command {
	cmd := cli.Group("rotate", "Rotate the CA in steps, without losing an agent",
		newCAStep(a, ca.Start, "Create a new CA that agents trust beside the old one",
			"Create a new CA. Agents trust it beside the old one from their next heartbeat.", false),
		newCAStep(a, ca.Sign, "Start to sign with the new CA",
			"Start to sign with the new CA. Agents renew their certificates within the time of twenty\nheartbeats. Runners get theirs with their next command.\n\nThe command fails while any agent does not trust the new CA yet, unless you give --force.", true),
		newCAStep(a, ca.Finish, "Drop the old CA and its key",
			"Drop the old CA and its key. Backups of the data directory can still contain them.\n\nThe command fails while agents or Runners use certificates of the old CA, unless you give\n--force. Agents and Runners that were offline the whole time recover by themselves: see\ndocs/operator/certificates.md.", true),
		newCAStep(a, ca.Abort, "Go back one step",
			"Go back one step. If the new CA signs, the old CA signs again. Otherwise, the new CA is dropped.\n\nDropping the new CA fails while agents or Runners use its certificates, unless you give --force.", true))
	cmd.Long = `Rotate the CA in three steps, without losing an agent: start, sign, finish.

Between the steps, pipeops-controlplane ca get lists the agents and Runners that are not ready
yet. You can repeat each step. Each step works whether or not a control plane serves the data
directory.`
	cmd.Example = `  pipeops-controlplane ca rotate start
  pipeops-controlplane ca rotate sign --dry-run
  pipeops-controlplane ca rotate sign
  pipeops-controlplane ca rotate finish`
	return cmd
}

func newCAStep(a *app, step ca.Step, short, long string, waits bool) *cobra.Command {
	var opts administration.RotateOptions
	cmd := &cobra.Command{
		Use:     string(step),
		Short:   short,
		Long:    long,
		Example: "  pipeops-controlplane ca rotate " + string(step),
		Args:    cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				return a.rotate(ctx, admin, step, opts)
			})
		},
	}
	cmd.Flags().BoolVar(&opts.DryRun, "dry-run", false, "only report whether the step is possible, and which agents and Runners are not ready")
	if waits {
		cmd.Flags().BoolVar(&opts.Force, "force", false, "do the step although some agents or Runners are not ready")
	}
	return cmd
}

func (a *app) rotate(ctx context.Context, admin operatorapi.Target, step ca.Step, opts administration.RotateOptions) error {
	in := operatorapi.RotateCAInput{Step: step, Body: operatorapi.RotateCABody{Force: opts.Force}}
	in.DryRun = opts.DryRun
	after, err := operatorapi.RotateCA.Do(ctx, admin, in)
	status, changed := after.CAStatus, after.Changed
	switch {
	case problem.Is(err, operatorapi.CodeNotReady):
		in.DryRun, in.Body.Force = true, true // which tells what is not ready
		if would, whyNot := operatorapi.RotateCA.Do(ctx, admin, in); whyNot == nil {
			a.sayNotReady(would.NotReady)
		}
		return err
	case err != nil:
		return err
	case opts.DryRun:
		a.sayNotReady(status.NotReady)
		a.say("`ca rotate %s` can be done; nothing was changed", step)
		return nil
	case !changed:
		a.say("That was done before: nothing was changed.")
	default:
		a.say("%s", done(step, status.Stage))
	}
	a.sayCA(status)
	return nil
}

func done(step ca.Step, stage ca.Stage) string {
	switch step {
	case ca.Start:
		return "There is a new CA. Agents receive it with their next heartbeat."
	case ca.Sign:
		return "The new CA signs. Agents and Runners get certificates of it."
	case ca.Finish:
		return "The old CA is dropped, and its key deleted."
	}
	if stage == ca.Introduced {
		return "The old CA signs again. To drop the new one, abort once more when all are ready for that."
	}
	return "The new CA is dropped, and its key deleted."
}
