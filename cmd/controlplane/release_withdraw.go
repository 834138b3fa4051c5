package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
)

func newReleaseWithdraw(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "withdraw ID|VERSION",
		Short: "Take back an offer, or all offers of a version; agents that have taken it stay",
		Long: `Take back an offer, or all offers of a version. Agents that wait for their window
do not take it any more; agents that have taken it stay what they are.

To have agents try a version again that failed, withdraw it and offer it anew.`,
		Example: "  pipeops-controlplane release withdraw v1.2.3",
		Args:    exactArgs("ID|VERSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				withdrawn, err := admin.WithdrawRelease(ctx, args[0])
				for _, r := range withdrawn {
					a.say("%s is not offered to %s any more", r.Version, offeredTo(r))
				}
				return err
			})
		},
	}
}
