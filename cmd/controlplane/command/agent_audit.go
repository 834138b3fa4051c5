package command

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

func newAgentAudit(a *app) *cobra.Command {
	var (
		out   cli.Output
		limit int
	)
	cmd := &cobra.Command{
		Use:   "audit AGENT",
		Short: "List the audit records that an agent sent",
		Long: `List the audit records that the control plane received from an agent.

To verify the log in the agent's cluster, give the printed HEAD to
` + "`pipeops-agent audit verify --head`" + ` there.`,
		Example: "  pipeops-controlplane agent audit shop --limit 20",
		Args:    cli.ExactArgs("AGENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				list, err := operatorapi.GetAgentAudit.Do(ctx, admin, operatorapi.AgentAuditInput{Agent: args[0], Limit: limit})
				if err != nil {
					return err
				}
				return out.Write(a.out, list, func(w io.Writer) { auditTable(w, list) })
			})
		},
	}
	out.AddList(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "number of newest records to list")
	return cmd
}

func auditTable(w io.Writer, list operatorapi.AgentAudit) {
	cli.Row(w, "SEQ", "TIME", "RUNNER", "COMMAND", "NAMESPACE", "NAME", "OUTCOME", "CODE", "CHAIN", "KUBERNETES")
	for _, r := range list.Items {
		chain := "whole"
		if r.Broken {
			chain = "BROKEN"
		}
		cli.Row(w, r.Seq, cli.Time(r.Time), r.By(), r.Command, r.Namespace, r.Name, r.Outcome, r.Code, chain, r.KubernetesCall())
	}
	cli.Say(w, "HEAD %d:%s", list.Head.Seq, list.Head.Hash)
}
