package command

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/components"
)

func newComponentInstall() *cobra.Command {
	var (
		place  componentsPlace
		choice componentsChoice
	)
	cmd := &cobra.Command{
		Use:   "install [COMPONENT...]",
		Short: "Install the components that the cluster lacks",
		Long: "Install the components that the cluster lacks: those that you name, those of a set, or those of\n" +
			"the file of settings. A component that something else in the cluster provides is left out, unless\n" +
			"the file says `mode: always`. A second run changes nothing, and a run that broke off is continued.\n\n" +
			"The command returns when all objects are applied. It does not wait for pods.",
		Example: `  pipeops-agent component install
  pipeops-agent component install cert-manager ingress
  pipeops-agent component install -f components.yaml --charts ./charts`,
		RunE: func(cmd *cobra.Command, args []string) error {
			i, plan, err := place.plan(cmd, args, choice)
			if err != nil {
				return err
			}
			return carryOut(cmd, i, plan)
		},
	}
	place.addCharts(cmd)
	choice.add(cmd)
	return cmd
}

// carryOut applies a plan, and shows what it was.
func carryOut(cmd *cobra.Command, i *components.Installer, plan components.Plan) error {
	ctx, stop := signals(cmd.Context())
	defer stop()
	if err := i.Apply(ctx, plan); err != nil {
		return err
	}
	out := cli.Output{Format: "table"}
	return out.Write(cmd.OutOrStdout(), plan, func(w io.Writer) { planTable(w, plan) })
}
