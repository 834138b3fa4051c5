package command

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/agent"
	"github.com/pipeops/pipeops-vm-agent/agent/config"
	"github.com/pipeops/pipeops-vm-agent/internal/audit"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/cli/auditflags"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// auditPlace is where the audit log is.
type auditPlace struct {
	ownCluster
	stateDir string
}

func (p *auditPlace) add(cmd *cobra.Command) {
	p.ownCluster.add(cmd)
	cmd.Flags().StringVar(&p.stateDir, "state-dir", os.Getenv("PIPEOPS_STATE_DIR"), "directory that holds the agent's state, if it has one")
}

func (p *auditPlace) store() (audit.Store, error) {
	if p.stateDir != "" {
		return agent.AuditStore(config.Config{StateDir: p.stateDir}, nil), nil
	}
	k, err := p.client()
	if err != nil {
		return nil, err
	}
	return agent.AuditStore(config.Config{}, k), nil
}

func newAudit() *cobra.Command {
	return group("audit", "Read and check the audit log of what Runners did", newAuditList(), newAuditVerify())
}

func newAuditList() *cobra.Command {
	var (
		place  auditPlace
		out    cli.Output
		filter auditflags.Filter
	)
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Search what Runners did: every command and every refusal",
		Long:  "Search what Runners did, newest call first: every command and every refusal.",
		Args:  cli.ExactArgs(),
		Example: `  pipeops-agent audit list --state-dir /var/lib/pipeops-agent --outcome refused --since 7d
  kubectl -n pipeops exec deploy/pipeops-agent -- /pipeops-agent audit list --app production/web`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := place.store()
			if err != nil {
				return err
			}
			list, err := auditList(cmd.Context(), s, filter)
			if err != nil {
				return err
			}
			return out.Write(cmd.OutOrStdout(), list, func(w io.Writer) { auditflags.Table(w, "RUNNER", list) })
		},
	}
	place.add(cmd)
	out.AddList(cmd)
	filter.Add(cmd)
	filter.AddAfter(cmd)
	return cmd
}

func auditList(ctx context.Context, s audit.Store, f auditflags.Filter) (runnerapi.AuditList, error) {
	if f.After >= 0 {
		return audit.Read(ctx, s, f.After, f.Limit)
	}
	return audit.Search(ctx, s, f.AuditFilter, nil)
}

func newAuditVerify() *cobra.Command {
	var (
		place auditPlace
		out   cli.Output
		head  string
	)
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Detect audit records that were removed, changed or moved",
		Long: "Verify the hash chain of all audit records that are kept.\n\n" +
			"The chain alone does not show that the end of the log was cut off, or that the whole log was\n" +
			"rewritten. To detect that, note the end of the log in advance and give it as --head.\n" +
			"`pipeops-controlplane agent audit AGENT` prints one.\n\n" +
			"The exit code is 0 when the log is intact.",
		Args: cli.ExactArgs(),
		Example: `  pipeops-agent audit verify --state-dir /var/lib/pipeops-agent
  kubectl -n pipeops exec deploy/pipeops-agent -- /pipeops-agent audit verify --head 1204:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			noted, err := audit.ParseHead(head)
			if err != nil {
				return wrong(err)
			}
			s, err := place.store()
			if err != nil {
				return err
			}
			report, err := audit.Verify(cmd.Context(), s, noted)
			if err != nil {
				return err
			}
			if err := out.Write(cmd.OutOrStdout(), report, func(w io.Writer) { verifyTable(w, report) }); err != nil {
				return err
			}
			if n := len(report.Problems); n > 0 {
				return fmt.Errorf("the audit log is not complete: %d problems (fix: find out who may write %s; the control plane has what it was sent: pipeops-controlplane agent audit AGENT)", n, s)
			}
			return nil
		},
	}
	place.add(cmd)
	out.Add(cmd)
	cmd.Flags().StringVar(&head, "head", "", "number and hash of a record that you noted before, as NUMBER:HASH")
	return cmd
}

func verifyTable(w io.Writer, r audit.Report) {
	for _, p := range r.Problems {
		cli.Say(w, "problem: %v", p)
	}
	cli.Say(w, "%d records, from %d; the last is %d:%s", r.Records, r.First, r.Head.Seq, r.Head.Hash)
}
