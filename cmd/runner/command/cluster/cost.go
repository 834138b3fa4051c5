package cluster

import (
	"context"
	"errors"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/tables"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// NewCost returns the command cost.
func NewCost(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	var opts runnerapi.CostOptions
	var by string
	cmd := &cobra.Command{
		Use:   "cost [AGENT]",
		Short: "Show what namespaces or Apps cost",
		Long: `Show what the namespaces that the agent manages have cost, or the Apps in them. The costs come from
OpenCost. The cluster must have it: ` + "`pipeops-agent component install opencost`" + `.

They are in OpenCost's currency: US dollars, unless the cluster's owner has set another.`,
		Example: `  pipeops-runner cost shop
  pipeops-runner cost shop --by app --since 168h
  pipeops-runner cost shop -n production --by app -o json`,
		Args:              cli.ExactArgs("AGENT"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			if by != "namespace" && by != "app" {
				return cli.Usage(errors.New("--by: is namespace or app"))
			}
			if opts.Since <= 0 || opts.Since > runnerapi.MaxHistory {
				return cli.Usage(errors.New("--since: is a duration of at most 30d"))
			}
			opts.ByApp = by == "app"
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				list, err := t.Monitoring().Cost(ctx, opts)
				if err != nil {
					return cmdutil.At(t, opts.Namespace, err)
				}
				if len(list.Items) == 0 && out.Table() {
					a.Say("OpenCost has no costs yet; it takes some minutes after it was installed")
				}
				if opts.ByApp && len(list.Items) > 0 && !slices.ContainsFunc(list.Items, func(c runnerapi.Cost) bool { return c.App != "" }) && out.Table() {
					a.Say("no costs are those of an App: there is none, or Prometheus does not scrape OpenCost (docs/cluster-owner/components.md)")
				}
				return out.Write(a.Out, list, func(w io.Writer) { tables.Costs(w, list.Items, opts.ByApp) })
			})
		},
	}
	out.AddList(cmd)
	f := cmd.Flags()
	f.StringVarP(&opts.Namespace, "namespace", "n", "", "show the costs of one namespace only")
	f.StringVar(&by, "by", "namespace", "namespace, or app")
	cli.DurationVar(f, &opts.Since, "since", runnerapi.DefaultCostRange, "sum up costs from this long ago, at most 30d")
	return cmd
}
