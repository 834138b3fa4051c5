package apps

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// NewScale returns the command scale.
func NewScale(a *cmdutil.CLI) *cobra.Command {
	w := &cmdutil.Rollout{CLI: a}
	cmd := &cobra.Command{
		Use:   "scale [AGENT] NAME (--replicas N | --min N --max N [--cpu-percent PERCENT])",
		Short: "Set an App's number of pods or its autoscaling bounds",
		Long: `Set an App's number of pods or its autoscaling bounds.

A fixed number turns autoscaling off. Bounds turn it on. If it is on already, the bounds that you
do not give stay.`,
		Example: `  pipeops-runner scale shop web --replicas 3
  pipeops-runner scale shop web --min 2 --max 10 --cpu-percent 70
  pipeops-runner scale shop web --max 20`,
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			var scale runnerapi.Scale
			for flag, into := range map[string]**int32{"replicas": &scale.Replicas, "min": &scale.Min, "max": &scale.Max, "cpu-percent": &scale.CPUPercent} {
				if cmd.Flags().Changed(flag) {
					n, _ := cmd.Flags().GetInt32(flag) // it is one
					*into = &n
				}
			}
			if errs := scale.Validate(); len(errs) > 0 {
				return cli.Usage(errors.New("--" + errs[0].Field + ": " + errs[0].Message))
			}
			return w.Run(cmd.Context(), args[0], args[1], func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
				return t.Apps().Scale(ctx, key, scale, opts)
			})
		},
	}
	w.Add(cmd)
	fl := cmd.Flags()
	fl.Int32("replicas", 0, "number of pods to run; turns autoscaling off")
	fl.Int32("min", 0, "minimum number of pods with autoscaling")
	fl.Int32("max", 0, "maximum number of pods with autoscaling")
	fl.Int32("cpu-percent", 0, "target CPU use of autoscaling, in percent of the requested CPU")
	return cli.Extra(cmd, "--replicas")
}
