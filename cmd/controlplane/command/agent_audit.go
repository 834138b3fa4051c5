package command

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/cli/auditflags"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newAgentAudit(a *app) *cobra.Command {
	var (
		out    cli.Output
		filter auditflags.Filter
	)
	cmd := &cobra.Command{
		Use:   "audit AGENT",
		Short: "Search the audit log that an agent sent",
		Long: `Search the audit records that the control plane received from an agent, newest call first.

To verify the log in the agent's cluster, give the printed HEAD to
` + "`pipeops-agent audit verify --head`" + ` there.`,
		Example: "  pipeops-controlplane agent audit shop --by ci --app production/web --since 2026-11-01",
		Args:    cli.ExactArgs("AGENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				list, err := operatorapi.GetAgentAudit.Do(ctx, admin, operatorapi.AgentAuditInput{Agent: args[0], AuditFilter: filter.AuditFilter})
				if err != nil {
					return err
				}
				return out.Write(a.out, list, func(w io.Writer) { auditTable(w, "RUNNER", list) })
			})
		},
	}
	out.AddList(cmd)
	filter.Add(cmd)
	return cmd
}

// auditTable writes calls, and the end of the log.
func auditTable(w io.Writer, who string, list runnerapi.AuditList) {
	auditflags.Table(w, who, list)
	cli.Say(w, "HEAD %d:%s", list.Head.Seq, list.Head.Hash)
}
