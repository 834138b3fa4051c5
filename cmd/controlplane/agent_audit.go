package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
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
		Args:    exactArgs("AGENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				lines, err := admin.Audit(ctx, args[0], limit)
				if err != nil {
					return err
				}
				list, err := auditOf(lines)
				if err != nil {
					return err
				}
				return out.Write(a.out, list, func(w io.Writer) { auditTable(w, list) })
			})
		},
	}
	out.Add(cmd)
	cmd.Flags().IntVar(&limit, "limit", 100, "number of newest records to list")
	return cmd
}

// auditLog is an agent's audit log as the control plane has it.
type auditLog struct {
	Items []auditEntry        `json:"items"`
	Head  runnerapi.AuditHead `json:"head"`
}

type auditEntry struct {
	runnerapi.AuditRecord
	Broken bool `json:"broken,omitempty"` // it does not follow the one before
}

func auditOf(lines []store.AuditLine) (auditLog, error) {
	list := auditLog{Items: []auditEntry{}}
	for _, l := range lines {
		r, err := runnerapi.DecodeAuditRecord([]byte(l.Line))
		if err != nil {
			return list, fmt.Errorf("record %d: %w", l.Seq, err)
		}
		r.Hash = l.Hash
		list.Items = append(list.Items, auditEntry{r, l.Broken})
		list.Head = runnerapi.AuditHead{Seq: l.Seq, Hash: l.Hash}
	}
	return list, nil
}

func auditTable(w io.Writer, list auditLog) {
	cli.Row(w, "SEQ", "TIME", "RUNNER", "COMMAND", "NAMESPACE", "NAME", "OUTCOME", "CODE", "CHAIN", "KUBERNETES")
	for _, r := range list.Items {
		chain := "whole"
		if r.Broken {
			chain = "BROKEN"
		}
		cli.Row(w, r.Seq, cli.Time(r.Time), r.Runner, r.Command, r.Namespace, r.Name, r.Outcome, r.Code, chain, r.KubernetesCall())
	}
	cli.Say(w, "HEAD %d:%s", list.Head.Seq, list.Head.Hash)
}
