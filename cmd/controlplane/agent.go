package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
)

func newAgent(a *app) *cobra.Command {
	return group("agent", "List, approve, label, refuse or forget agents, or read an agent's timeline or audit log",
		newAgentList(a, "list"), newAgentsShow(a), newAgentApprove(a), newAgentDeny(a), newAgentLabel(a), newAgentRevoke(a), newAgentRemove(a), newAgentTimeline(a), newAgentAudit(a))
}

func newAgentRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke AGENT",
		Short: "Refuse an agent from now on",
		Long: `Refuse an agent from now on: its requests are refused at once and its tunnel is
closed. What runs in its cluster goes on running.`,
		Example: "  pipeops-controlplane agent revoke shop",
		Args:    exactArgs("AGENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				agent, err := admin.RevokeAgent(ctx, args[0])
				if err != nil {
					return err
				}
				a.say("agent %s (%s) is revoked; `pipeops-controlplane agent remove %s` would let its cluster register anew", agent.Name, agent.ID, agent.ID)
				return nil
			})
		},
	}
}

func newAgentRemove(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "remove AGENT",
		Short:   "Forget a revoked agent, so that its cluster may register anew",
		Example: "  pipeops-controlplane agent remove shop",
		Args:    exactArgs("AGENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				agent, err := admin.RemoveAgent(ctx, args[0])
				if err != nil {
					return err
				}
				a.say("agent %s (%s) is forgotten", agent.Name, agent.ID)
				return nil
			})
		},
	}
}
