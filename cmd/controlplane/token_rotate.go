package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
)

func newTokenRotate(a *app) *cobra.Command {
	var (
		overlap time.Duration
		out     cli.Output
	)
	cmd := &cobra.Command{
		Use:   "rotate ID",
		Short: "Replace an enrolment token by a new one like it, and print that, once",
		Long: `Replace an enrolment token by a new one with the same name, labels and limits: it has
all its uses, and its whole lifetime before it. The old one ends at once, or after
--overlap, so that what installs with it has the time to learn the new one.

Agents that registered with the old one stay, and registrations that wait for approval
go on waiting. One that was stolen and may be waiting with somebody else's cluster is
better revoked: that ends those as well.`,
		Example: `  pipeops-controlplane token rotate x3f2k7aabbccddee
  pipeops-controlplane token rotate x3f2k7aabbccddee --overlap 48h`,
		Args: exactArgs("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				token, kept, err := admin.RotateToken(ctx, args[0], overlap)
				if err != nil {
					return err
				}
				if err := a.printToken(token, kept, out); err != nil {
					return err
				}
				end := "has ended"
				if overlap > 0 {
					end = "ends " + cli.Until(time.Now().Add(overlap))
				}
				a.say("token %s came in the place of %s, which %s", kept.ID, args[0], end)
				return nil
			})
		},
	}
	cmd.Flags().DurationVar(&overlap, "overlap", 0, "how long the old one can still be used")
	out.Add(cmd)
	return cmd
}
