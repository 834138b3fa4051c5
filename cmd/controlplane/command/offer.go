package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

func newOffer(a *app) *cobra.Command {
	return cli.Group("offer", "Offer versions to agents that have self-update on",
		newOfferCreate(a), newOfferList(a), newOfferDelete(a))
}

func newOfferDelete(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "delete ID|VERSION",
		Short: "Delete an offer, or all offers of a version",
		Long: `Delete an offer, or all offers of a version. Agents that wait for their window do not take it.
Agents that have taken the version keep it.

To have agents retry a version that failed, delete its offer and create it again.`,
		Example: "  pipeops-controlplane offer delete v1.2.3",
		Args:    cli.ExactArgs("ID|VERSION"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				withdrawn, err := operatorapi.DeleteOffer.Do(ctx, admin, operatorapi.WithdrawInput{Release: args[0]})
				for _, r := range withdrawn.Items {
					a.say("%s is not offered to %s any more", r.Version, offeredTo(r))
				}
				return err
			})
		},
	}
}
