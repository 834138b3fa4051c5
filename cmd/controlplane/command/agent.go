package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

func newAgent(a *app) *cobra.Command {
	return cli.Group("agent", "Manage agents: approve, label, revoke and inspect them",
		newAgentList(a), newAgentGet(a), newAgentApprove(a), newAgentDeny(a), newAgentLabel(a), newAgentRevoke(a), newAgentDelete(a), newAgentTimeline(a), newAgentAudit(a))
}

func newAgentRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "revoke AGENT",
		Short: "Revoke an agent's access",
		Long: `Revoke an agent's access. The control plane refuses the agent's requests at once and closes
its tunnel. Workloads in its cluster continue to run.`,
		Example: "  pipeops-controlplane agent revoke shop",
		Args:    cli.ExactArgs("AGENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				agent, err := operatorapi.RevokeAgent.Do(ctx, admin, operatorapi.AgentInput{Agent: args[0]})
				if err != nil {
					return err
				}
				a.say("agent %s (%s) is revoked; `pipeops-controlplane agent delete %s` would let its cluster register again", agent.Name, agent.ID, agent.ID)
				return nil
			})
		},
	}
}

func newAgentDelete(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "delete AGENT",
		Short:   "Delete a revoked agent from the registry",
		Long:    "Delete a revoked agent from the registry. Its cluster can then register again.",
		Example: "  pipeops-controlplane agent delete shop",
		Args:    cli.ExactArgs("AGENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				agent, err := operatorapi.DeleteAgent.Do(ctx, admin, operatorapi.AgentInput{Agent: args[0]})
				if err != nil {
					return err
				}
				a.say("agent %s (%s) is deleted", agent.Name, agent.ID)
				return nil
			})
		},
	}
}
