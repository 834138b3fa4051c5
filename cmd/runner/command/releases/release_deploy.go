package releases

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/cli/chartflags"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// releaseDeploy installs a chart or upgrades a release to it.
type releaseDeploy struct {
	releaseCommand
	spec   runnerapi.ReleaseSpec
	chart  chartflags.Chart
	values chartflags.Values
	// revision is that of the release from which the spec was made; 0 for any.
	revision int
}

func newReleaseDeploy(a *cmdutil.CLI) *cobra.Command {
	c := &releaseDeploy{releaseCommand: releaseCommand{CLI: a, does: deploys}}
	cmd := &cobra.Command{
		Use: "deploy [AGENT] NAME --chart CHART", Short: "Install a Helm chart, or upgrade a release to it",
		Long: `Install a Helm chart, or upgrade a release to it, and wait until its objects are ready.

CHART is a name in the repository that --repo names, a reference oci://…, or a chart on this
machine. A chart on this machine is a directory, or an archive that helm package wrote. The
values replace all values of an earlier revision, unless you give --reuse-values or
--reset-then-reuse-values.

If you interrupt the command, the deploy continues in the cluster. If the agent ends during the
deploy, it leaves a failed revision, and the next deploy can continue.`,
		Example: `  pipeops-runner helm deploy shop guide --chart ./guide --set greeting=hello
  pipeops-runner helm deploy shop guide --chart ./guide -f values.yaml --dry-run
  pipeops-runner helm deploy guide -l env=prod --chart ./guide --wave 10%`,
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.gather(); err != nil {
				return cli.Usage(err)
			}
			return c.run(cmd.Context(), args[0], args[1], func(ctx context.Context, t *cmdutil.Target, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.Release, error) {
				opts.Revision = c.revision
				return t.Releases().Deploy(ctx, key, c.spec, opts)
			})
		},
	}
	c.add(cmd)
	c.fleet.Add(cmd)
	f := cmd.Flags()
	c.chart.Add(f)
	c.values.Add(f)
	f.IntVar(&c.revision, "if-revision", 0, "refuse the deploy if the release has another revision: helm status shows it")
	f.BoolVar(&c.spec.ReuseValues, "reuse-values", false, "merge the values over the release's, and keep the defaults of its chart")
	f.BoolVar(&c.spec.ResetThenReuseValues, "reset-then-reuse-values", false, "merge the values over those that the release was given, and take the new chart's defaults")
	f.StringVar(&c.spec.Timeout, "timeout", "", "how long objects may take to become ready, at most 1h (default 5m)")
	f.BoolVar(&c.spec.RollbackOnFailure, "rollback-on-failure", false, "roll back to the last deployed revision if this one fails")
	f.BoolVar(&c.spec.ForceConflicts, "force-conflicts", false, "take over fields of the release's objects that other clients have set since")
	f.BoolVar(&c.spec.SkipSchemaValidation, "skip-schema-validation", false, "do not hold the values against the chart's schema, which may refer to one elsewhere")
	f.BoolVar(&c.spec.SkipCRDs, "skip-crds", false, "leave out the definitions in the chart's folder crds/")
	f.BoolVar(&c.spec.Adopt, "adopt", false, "take over a release of this name that the helm program created")
	cmd.MarkFlagsMutuallyExclusive("reuse-values", "reset-then-reuse-values")
	return cmd
}

// gather makes the spec of the flags.
func (c *releaseDeploy) gather() (err error) {
	if c.spec.Chart, err = c.chart.Source(); err != nil {
		return err
	}
	c.spec.Values, err = c.values.Merged(c.In)
	return err
}
