package cluster

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// NewAudit returns the command audit.
func NewAudit(a *cmdutil.CLI) *cobra.Command {
	var (
		out   cli.Output
		after int64
		limit int
	)
	cmd := &cobra.Command{
		Use:               "audit [AGENT]",
		Short:             "List the audit records of an agent",
		Long:              "List the audit records of an agent: every command of a Runner and every refusal.",
		Example:           "  pipeops-runner audit shop\n  pipeops-runner audit shop --after 1200 -o json",
		Args:              cli.ExactArgs("AGENT"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				list, err := t.Audit().List(ctx, after, limit)
				if err != nil {
					return cmdutil.At(t, "", err)
				}
				return out.Write(a.Out, list, func(w io.Writer) { auditTable(w, list.Items) })
			})
		},
	}
	out.AddList(cmd)
	cmd.Flags().Int64Var(&after, "after", -1, "list records with a higher number, oldest first; by default the newest records")
	cmd.Flags().IntVar(&limit, "limit", 100, "maximum number of records")
	return cmd
}

func auditTable(w io.Writer, records []runnerapi.AuditRecord) {
	cli.Row(w, "SEQ", "TIME", "RUNNER", "COMMAND", "NAMESPACE", "NAME", "OUTCOME", "CODE", cli.Wide("MS"), cli.Wide("REQUEST"), cli.Wide("KUBERNETES"))
	for _, r := range records {
		cli.Row(w, r.Seq, cli.Time(r.Time), r.By(), r.Command, r.Namespace, r.Name, r.Outcome, r.Code, r.Millis, r.RequestID, r.KubernetesCall())
	}
}
