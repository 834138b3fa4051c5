package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/ca"
)

func newCARotate(a *app) *cobra.Command {
	cmd := group("rotate", "Replace the CA, step by step, with no agent lost",
		newCAStep(a, ca.Start, "Make a new CA, which is trusted beside the old one",
			"Make a new CA. Agents trust it beside the old one from their next heartbeat on.", false),
		newCAStep(a, ca.Sign, "Have the new CA sign",
			"Have the new CA sign. Agents renew their certificates within twenty heartbeats' time,\nand Runners get theirs with the next command.\nIt is refused while there are agents that do not trust the new CA yet.", true),
		newCAStep(a, ca.Finish, "Drop the old CA and its key",
			"Drop the old CA and its key. Backups of the data directory may hold it still.\nIt is refused while agents or Runners use certificates of the old CA. Those that were\noffline all the time come back by themselves: see docs/certificates.md.", true),
		newCAStep(a, ca.Abort, "Go one step back",
			"Go one step back: the old CA signs again or, when it does, the new one is dropped.\nThat is refused while agents or Runners use certificates of the new CA.", true))
	cmd.Long = `Replace the CA, step by step, with no agent lost: start, sign, finish. Between the
steps pipeops-controlplane ca show says who is not ready yet. Each step can be
repeated, and works whether or not a control plane serves the data directory.`
	cmd.Example = `  pipeops-controlplane ca rotate start
  pipeops-controlplane ca rotate sign --dry-run
  pipeops-controlplane ca rotate sign
  pipeops-controlplane ca rotate finish`
	return cmd
}

func newCAStep(a *app, step ca.Step, short, long string, waits bool) *cobra.Command {
	var opts controlplane.RotateOptions
	cmd := &cobra.Command{
		Use:     string(step),
		Short:   short,
		Long:    long,
		Example: "  pipeops-controlplane ca rotate " + string(step),
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				return a.rotate(ctx, admin, step, opts)
			})
		},
	}
	cmd.Flags().BoolVar(&opts.DryRun, "dry-run", false, "only say whether it could be done, and who is not ready")
	if waits {
		cmd.Flags().BoolVar(&opts.Force, "force", false, "do it though some are not ready")
	}
	return cmd
}

func (a *app) rotate(ctx context.Context, admin *controlplane.Admin, step ca.Step, opts controlplane.RotateOptions) error {
	status, changed, err := admin.RotateCA(ctx, step, opts)
	var waiting *controlplane.NotReadyError
	switch {
	case errors.As(err, &waiting):
		a.sayNotReady(waiting.NotReady)
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
		return "There is a new CA. Agents learn of it with their next heartbeat."
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
