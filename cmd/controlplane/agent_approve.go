package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
)

func newAgentApprove(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "approve AGENT",
		Short: "Let an agent in that waits for approval",
		Long: `Let an agent in that registers with a token of "token create --approve". Compare KEY
in the list of agents with the key that the agent says in its own log: whoever has stolen
the token can give any name, but has another key. The agent learns of it within seconds.

Several that wait with one name are told apart by their IDs alone.`,
		Example: "  pipeops-controlplane agents\n  pipeops-controlplane agent approve x3f2k7aabbccddee",
		Args:    exactArgs("AGENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				e, err := admin.ApproveAgent(ctx, args[0])
				if err != nil {
					return err
				}
				a.say("%s (%s) is approved, with key %s", e.Name, e.ID, controlapi.ShortPrint(e.Key))
				return nil
			})
		},
	}
}

func newAgentDeny(a *app) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "deny AGENT",
		Short: "Refuse an agent that waits for approval",
		Long: `Refuse an agent that waits for approval. It says so, with the reason, and asks every ten
minutes from then on: "agent approve" can still let it in.`,
		Example: `  pipeops-controlplane agent deny x3f2k7aabbccddee --reason "not one of ours"`,
		Args:    exactArgs("AGENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				e, err := admin.DenyAgent(ctx, args[0], reason)
				if err != nil {
					return err
				}
				a.say("%s (%s) is denied, with key %s; `pipeops-controlplane agent approve %s` would still let it in", e.Name, e.ID, controlapi.ShortPrint(e.Key), e.ID)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why, for the agent to say")
	return cmd
}
