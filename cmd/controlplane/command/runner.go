package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

func newRunner(a *app) *cobra.Command {
	return cli.Group("runner", "Manage Runners, which deploy through agents",
		newRunnerCreate(a), newRunnerList(a), newRunnerGrant(a), newRunnerRevoke(a))
}

func newRunnerRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NAME",
		Short: "Revoke a Runner's certificate",
		Long: `Revoke a Runner's certificate. The control plane refuses it at once. Connected agents refuse it
within seconds and close its open connections. A disconnected agent receives the revocation
before it accepts a Runner again.`,
		Example: "  pipeops-controlplane runner revoke builder",
		Args:    cli.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				if _, err := operatorapi.RevokeRunner.Do(ctx, admin, operatorapi.RunnerInput{Runner: args[0]}); err != nil {
					return err
				}
				a.say("Runner %s is revoked", args[0])
				return nil
			})
		},
	}
}
