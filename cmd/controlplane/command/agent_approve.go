package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

func newAgentApprove(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "approve AGENT",
		Short: "Approve a pending registration",
		Long: `Approve the registration of an agent whose token comes from "token create --approve".

Compare KEY in the list of agents with the key in the agent's own log. Anyone who stole the
token can give any name, but has another key. The agent receives the approval within seconds.

If several pending registrations have the same name, identify them by ID.`,
		Example: "  pipeops-controlplane agent list\n  pipeops-controlplane agent approve x3f2k7aabbccddee",
		Args:    cli.ExactArgs("AGENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				e, err := operatorapi.ApproveAgent.Do(ctx, admin, operatorapi.AgentInput{Agent: args[0]})
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
		Short: "Deny a pending registration",
		Long: `Deny a pending registration. The agent logs the denial with its reason, and asks again every
ten minutes. You can still approve it with "agent approve".`,
		Example: `  pipeops-controlplane agent deny x3f2k7aabbccddee --reason "not one of ours"`,
		Args:    cli.ExactArgs("AGENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				e, err := operatorapi.DenyAgent.Do(ctx, admin, operatorapi.DenyAgentInput{
					Agent: args[0], Body: operatorapi.DenyAgentBody{Reason: reason},
				})
				if err != nil {
					return err
				}
				a.say("%s (%s) is denied, with key %s; `pipeops-controlplane agent approve %s` would still let it in", e.Name, e.ID, controlapi.ShortPrint(e.Key), e.ID)
				return nil
			})
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "reason that the agent reports")
	return cmd
}
