package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

func newToken(a *app) *cobra.Command {
	return cli.Group("token", "Manage the enrolment tokens with which agents register",
		newTokenCreate(a), newTokenList(a), newTokenRotate(a), newTokenRevoke(a))
}

func newTokenRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "revoke ID",
		Short:   "Revoke an enrolment token",
		Long:    "Revoke an enrolment token. Agents that registered with it stay registered.",
		Example: "  pipeops-controlplane token revoke x3f2k7aabbccddee",
		Args:    cli.ExactArgs("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				if _, err := operatorapi.RevokeToken.Do(ctx, admin, operatorapi.TokenInput{ID: args[0]}); err != nil {
					return err
				}
				a.say("token %s is revoked", args[0])
				return nil
			})
		},
	}
}
