package command

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newApprovals() *cobra.Command {
	var (
		own ownCluster
		out cli.Output
	)
	cmd := &cobra.Command{
		Use:   "approvals",
		Short: "List the commands of Runners that wait for an approval",
		Long: "List the commands that wait for an approval, and those that were approved and not sent again yet.\n" +
			"Below the table is the whole of each command. Each secret value is replaced by its length.\n\n" +
			"A command waits if a rule of the policy with `approval` allows it.",
		Args:    cli.ExactArgs(),
		Example: `  kubectl -n pipeops exec deploy/pipeops-agent -- /pipeops-agent approvals`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			k, err := own.client()
			if err != nil {
				return err
			}
			all, err := k.Approvals().List(cmd.Context())
			if err != nil {
				return err
			}
			if err := out.Write(cmd.OutOrStdout(), all, func(w io.Writer) { approvalTable(w, all) }); err != nil || !out.Table() {
				return err
			}
			return approvalDetails(cmd.OutOrStdout(), all)
		},
	}
	own.add(cmd)
	out.AddList(cmd)
	return cmd
}

func newApprove() *cobra.Command {
	var own ownCluster
	cmd := &cobra.Command{
		Use:   "approve ID...",
		Short: "Approve commands of Runners that wait for it",
		Long: "Approve commands that wait for an approval. `pipeops-agent approvals` lists them.\n\n" +
			"Once approved, the Runner can send the same command again, once, until the time that the list\n" +
			"shows.",
		Args:    cli.LeastArgs("ID"),
		Example: `  kubectl -n pipeops exec deploy/pipeops-agent -- /pipeops-agent approve 9f86d081884c7d65`,
		RunE: func(cmd *cobra.Command, ids []string) error {
			k, err := own.client()
			if err != nil {
				return err
			}
			for _, id := range ids {
				a, err := k.Approvals().Approve(cmd.Context(), id)
				if err != nil {
					return err
				}
				record(cmd, k, runnerapi.AuditRecord{Command: "approve", Namespace: a.Namespace, Name: a.Name, Approval: a.ID}, nil)
				cli.Say(cmd.OutOrStdout(), "approved until %s: Runner %s may do %s once", cli.Time(a.Until), a.By(), approvedCommand(a))
				if err := approvalDetails(cmd.OutOrStdout(), []runnerapi.Approval{a}); err != nil {
					return err
				}
			}
			return nil
		},
	}
	own.add(cmd)
	return cmd
}

// approvedCommand names a command and what it is about.
func approvedCommand(a runnerapi.Approval) string {
	return strings.TrimSpace(a.Command + " " + strings.Trim(a.Namespace+"/"+a.Name, "/"))
}

func approvalTable(w io.Writer, all []runnerapi.Approval) {
	cli.Row(w, "ID", "ASKED", "UNTIL", "RUNNER", "COMMAND", "NAMESPACE", "NAME", "APPROVED")
	for _, a := range all {
		approved := ""
		if a.Approved != nil {
			approved = cli.Time(*a.Approved)
		}
		cli.Row(w, a.ID, cli.Time(a.Asked), cli.Time(a.Until), a.By(), a.Command, a.Namespace, a.Name, approved)
	}
}

// approvalDetails writes the whole of each request below the table.
func approvalDetails(w io.Writer, all []runnerapi.Approval) error {
	for _, a := range all {
		if err := cli.Print(w, "\n"+a.ID+"\n  "+strings.Join(a.Request.Lines(), "\n  ")); err != nil {
			return err
		}
	}
	return nil
}
