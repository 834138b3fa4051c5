package cluster

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/tables"
)

// NewAlerts returns the command alerts.
func NewAlerts(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	var namespace string
	cmd := &cobra.Command{
		Use:   "alerts [AGENT]",
		Short: "List the active alerts of an agent's cluster",
		Long: `List the alerts that fire or are pending: those of the cluster, and of the namespaces that the agent
manages. They come from Prometheus. The cluster must have it:
` + "`pipeops-agent component install prometheus`" + `.`,
		Example:           "  pipeops-runner alerts shop\n  pipeops-runner alerts shop -n production -o json",
		Args:              cli.ExactArgs("AGENT"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				list, err := t.Monitoring().Alerts(ctx, namespace)
				if err != nil {
					return cmdutil.At(t, namespace, err)
				}
				if len(list.Items) == 0 && out.Table() {
					a.Say("there are none")
				}
				if list.Omitted > 0 {
					a.Say("%d more alerts are left out; -n names a namespace", list.Omitted)
				}
				return out.Write(a.Out, list, func(w io.Writer) { tables.Alerts(w, list.Items) })
			})
		},
	}
	out.AddList(cmd)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "list the alerts of one namespace only")
	return cmd
}
