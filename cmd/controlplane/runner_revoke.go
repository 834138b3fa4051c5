package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
)

func newRunnerRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NAME",
		Short: "Refuse a Runner from now on",
		Long: `Refuse a Runner's certificate: at the control plane at once, and at each agent that is
connected within seconds, where connections that are open are cut. An agent that is not
connected hears of it before it lets a Runner in again.`,
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
