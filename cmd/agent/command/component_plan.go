package command

import (
	"cmp"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/components"
)

func newComponentPlan() *cobra.Command {
	var (
		place  componentsPlace
		out    cli.Output
		choice componentsChoice
	)
	cmd := &cobra.Command{
		Use:   "plan [COMPONENT...]",
		Short: "Show what install would do, and why",
		Example: `  pipeops-agent component plan
  pipeops-agent component plan --set full -o yaml`,
		RunE: func(cmd *cobra.Command, args []string) error {
			_, plan, err := place.plan(cmd, args, choice)
			if err != nil {
				return err
			}
			return out.Write(cmd.OutOrStdout(), plan, func(w io.Writer) { planTable(w, plan) })
		},
	}
	place.addCharts(cmd)
	choice.add(cmd)
	out.Add(cmd)
	return cmd
}

func planTable(w io.Writer, plan components.Plan) {
	cli.Row(w, "COMPONENT", "ACTION", "NAMESPACE", "REASON")
	for _, s := range plan.Steps {
		cli.Row(w, s.Component, s.Action, cmp.Or(s.Namespace, "-"), s.Reason)
	}
}
