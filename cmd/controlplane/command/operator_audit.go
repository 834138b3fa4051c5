package command

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/cli/auditflags"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

func newOperatorAudit(a *app) *cobra.Command {
	return cli.Group("audit", "Read and check the operators' audit log", newOperatorAuditList(a), newOperatorAuditVerify(a))
}

func newOperatorAuditList(a *app) *cobra.Command {
	var (
		out    cli.Output
		filter auditflags.Filter
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Search what operators did, and what was refused",
		Long: `Search what operators did by the API or in the data directory, and what was refused, newest call
first. A change has two records: begun before it is made, and its outcome. The list has one line for
both.

Note the printed HEAD elsewhere. "operator audit verify --head" later shows whether records are
missing at the log's end.`,
		Example: "  pipeops-controlplane operator audit list --by alice --outcome refused",
		Args:    cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				list, err := operatorapi.GetOperatorAudit.Do(ctx, admin, operatorapi.OperatorAuditInput{AuditFilter: filter.AuditFilter})
				if err != nil {
					return err
				}
				return out.Write(a.out, list, func(w io.Writer) { auditTable(w, "OPERATOR", list.Calls()) })
			})
		},
	}
	out.AddList(cmd)
	filter.Add(cmd)
	return cmd
}

func newOperatorAuditVerify(a *app) *cobra.Command {
	var (
		out  cli.Output
		head string
	)
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check the chain of the operators' audit log",
		Long: `Check the chain of the operators' audit log. It shows records that were changed, removed or moved.
To notice records that are missing at the log's end, give a HEAD that was noted before.`,
		Example: "  pipeops-controlplane operator audit verify",
		Args:    cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			noted, err := audit.ParseHead(head)
			if err != nil {
				return cli.Usage(err)
			}
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				report, err := operatorapi.VerifyOperatorAudit.Do(ctx, admin, operatorapi.VerifyAuditInput(noted))
				if err != nil {
					return err
				}
				err = out.Write(a.out, report, func(w io.Writer) {
					for _, p := range report.Problems {
						cli.Say(w, "%s", cli.Printable(p))
					}
					cli.Say(w, "%d records from %d, HEAD %d:%s", report.Records, report.First, report.Head.Seq, report.Head.Hash)
				})
				if err == nil && len(report.Problems) > 0 {
					err = errors.New("the operators' audit log is not whole")
				}
				return err
			})
		},
	}
	out.Add(cmd)
	cmd.Flags().StringVar(&head, "head", "", "HEAD that was noted before, as NUMBER:HASH")
	return cmd
}
