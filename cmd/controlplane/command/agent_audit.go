package command

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newAgentAudit(a *app) *cobra.Command {
	var (
		out    cli.Output
		filter audit.Filter
	)
	cmd := &cobra.Command{
		Use:   "audit AGENT",
		Short: "Search the audit log that an agent sent",
		Long: `Search the audit records that the control plane received from an agent, newest call first.

To verify the log in the agent's cluster, give the printed HEAD to
` + "`pipeops-agent audit verify --head`" + ` there.`,
		Example: "  pipeops-controlplane agent audit shop --by ci --app production/web --from 2026-11-01T00:00:00Z",
		Args:    cli.ExactArgs("AGENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				list, err := operatorapi.GetAgentAudit.Do(ctx, admin, operatorapi.AgentAuditInput{Agent: args[0], Filter: filter})
				if err != nil {
					return err
				}
				return out.Write(a.out, list, func(w io.Writer) { auditTable(w, list) })
			})
		},
	}
	out.AddList(cmd)
	addAuditFilter(cmd, &filter)
	return cmd
}

// addAuditFilter adds the flags that select calls in an audit log.
func addAuditFilter(cmd *cobra.Command, f *audit.Filter) {
	flags := cmd.Flags()
	flags.StringVar(&f.By, "by", "", "part of the name of the Runner or operator that sent the call")
	flags.StringVar(&f.App, "app", "", "part of the App's NAMESPACE/NAME, or of what else the call is about")
	flags.StringVar(&f.Command, "command", "", "part of the call's operationId, such as put-app")
	flags.StringVar((*string)(&f.Outcome), "outcome", "", "begun, done, refused or failed")
	flags.TimeVar(&f.From, "from", time.Time{}, []string{time.RFC3339, time.DateOnly}, "only calls that came at this time or later, such as 2026-11-01T00:00:00Z")
	flags.TimeVar(&f.To, "to", time.Time{}, []string{time.RFC3339, time.DateOnly}, "only calls that came before this time")
	flags.Int64Var(&f.Before, "before", 0, "search further: the number that the last line of an earlier search names")
	flags.IntVar(&f.Limit, "limit", audit.DefaultCalls, "number of newest calls to list")
}

// auditEnd prints where a search ended, and the end of the log.
func auditEnd(w io.Writer, more operatorapi.More, head runnerapi.AuditHead) {
	if more.Older > 0 {
		cli.Say(w, "%d records were searched; older ones: --before %d", more.Scanned, more.Older)
	}
	cli.Say(w, "HEAD %d:%s", head.Seq, head.Hash)
}

func auditTable(w io.Writer, list operatorapi.AgentAudit) {
	cli.Row(w, "SEQ", "TIME", "RUNNER", "COMMAND", "NAMESPACE", "NAME", "OUTCOME", "CODE", "MS", "CHAIN", "KUBERNETES")
	for _, r := range list.Items {
		chain := "whole"
		if r.Broken {
			chain = "BROKEN"
		}
		cli.Row(w, r.Seq, cli.Time(r.Time), r.By(), r.Command, r.Namespace, r.Name, r.Outcome, r.Code, r.Millis, chain, r.KubernetesCall())
	}
	auditEnd(w, list.More, list.Head)
}
