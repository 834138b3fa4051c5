package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
)

func newTokenRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "revoke ID",
		Short:   "Revoke an enrolment token",
		Long:    "Revoke an enrolment token. Agents that registered with it stay registered.",
		Example: "  pipeops-controlplane token revoke x3f2k7aabbccddee",
		Args:    exactArgs("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				if err := admin.RevokeToken(ctx, args[0]); err != nil {
					return err
				}
				a.say("token %s is revoked", args[0])
				return nil
			})
		},
	}
}
