package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
)

func newRunnerRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NAME",
		Short: "Revoke a Runner's certificate",
		Long: `Revoke a Runner's certificate. The control plane refuses it at once. Connected agents refuse it
within seconds and close its open connections. A disconnected agent receives the revocation
before it accepts a Runner again.`,
		Example: "  pipeops-controlplane runner revoke builder",
		Args:    exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				if err := admin.RevokeRunner(ctx, args[0]); err != nil {
					return err
				}
				a.say("Runner %s is revoked", args[0])
				return nil
			})
		},
	}
}
