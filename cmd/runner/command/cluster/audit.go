package cluster

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/cli/auditflags"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// NewAudit returns the command audit.
func NewAudit(a *cmdutil.CLI) *cobra.Command {
	var (
		out    cli.Output
		filter auditflags.Filter
	)
	cmd := &cobra.Command{
		Use:   "audit [AGENT]",
		Short: "Search the audit log of an agent",
		Long:  "Search the audit log of an agent, newest call first: every command of a Runner and every refusal.",
		Example: `  pipeops-runner audit shop --app production/web --since 2h
  pipeops-runner audit shop --after 1200 -o json`,
		Args:              cli.ExactArgs("AGENT"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				list, err := auditList(ctx, t, filter)
				if err != nil {
					return cmdutil.At(t, "", err)
				}
				return out.Write(a.Out, list, func(w io.Writer) { auditflags.Table(w, "RUNNER", list) })
			})
		},
	}
	out.AddList(cmd)
	filter.Add(cmd)
	filter.AddAfter(cmd)
	return cmd
}

func auditList(ctx context.Context, t *cmdutil.Target, f auditflags.Filter) (runnerapi.AuditList, error) {
	if f.After >= 0 {
		return t.Audit().List(ctx, f.After, f.Limit)
	}
	return t.Audit().Find(ctx, f.AuditFilter)
}
