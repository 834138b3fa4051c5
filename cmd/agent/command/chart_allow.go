package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/pipeops/pipeops-vm-agent/internal/chartgrant"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/cli/chartflags"
	"github.com/pipeops/pipeops-vm-agent/internal/egress"
	"github.com/pipeops/pipeops-vm-agent/internal/helm"
	"github.com/pipeops/pipeops-vm-agent/internal/helm/repository"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// chartAllow grants what one chart needs.
type chartAllow struct {
	grants
	key       runnerapi.Key
	runners   []string
	chart     chartflags.Chart
	values    chartflags.Values
	httpHosts []string
	yes       bool
	dryRun    bool
}

func newChartAllow() *cobra.Command {
	c := &chartAllow{}
	cmd := &cobra.Command{
		Use:   "allow NAME --namespace NAMESPACE --runner RUNNER --chart CHART",
		Short: "Let a Runner deploy one version of a chart as the release NAME",
		Long: "Let a Runner deploy one version of a chart as the release NAME of a namespace.\n\n" +
			"The command renders the chart with the values that you give, and shows the rights that its roles\n" +
			"hold. If you agree, it does two things with your rights:\n\n" +
			"- It gives these rights to the agent, because Kubernetes lets no client pass on a right that it\n" +
			"  lacks.\n" +
			"- It puts a rule before the others of the policy. The rule allows this version of the chart, by\n" +
			"  the digest of its files, and the objects of the whole cluster that the command has rendered,\n" +
			"  by their names.\n\n" +
			"Anyone who may deploy into the namespace can use the rights of the chart's ServiceAccounts: give\n" +
			"the chart its own namespace. For another version, run the command again.",
		Args: cli.ExactArgs("NAME"),
		Example: `  pipeops-agent chart allow ksm -n monitoring --runner ci --chart kube-state-metrics --repo https://prometheus-community.github.io/helm-charts --version 5.2.1
  pipeops-agent chart allow web -n shop --runner ci --chart ./web -f values.yaml --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c.key.Name = args[0]
			return c.run(cmd)
		},
	}
	c.add(cmd)
	fl := cmd.Flags()
	fl.StringVarP(&c.key.Namespace, "namespace", "n", "", "namespace of the release, which the agent manages")
	fl.StringSliceVar(&c.runners, "runner", nil, "names of the Runners that may deploy it")
	c.chart.Add(fl)
	c.values.Add(fl)
	fl.StringSliceVar(&c.httpHosts, "chart-http-hosts", nil, "hosts of chart repositories and registries without TLS")
	fl.BoolVar(&c.dryRun, "dry-run", false, "show the rights and the rule, and change nothing")
	fl.BoolVarP(&c.yes, "yes", "y", false, "do not ask for confirmation")
	return cmd
}

// spec returns the chart and its values.
func (c *chartAllow) spec(in io.Reader) (runnerapi.ReleaseSpec, error) {
	var spec runnerapi.ReleaseSpec
	var err error
	switch {
	case c.key.Namespace == "":
		return spec, errors.New("no namespace: give --namespace NAMESPACE")
	case len(c.runners) == 0:
		return spec, errors.New("no Runner: give --runner NAME, or --runner '*' for all")
	}
	if spec.Chart, err = c.chart.Source(); err != nil {
		return spec, err
	}
	if spec.Values, err = c.values.Merged(in); err != nil {
		return spec, err
	}
	if wrong := spec.Validate(); len(wrong) > 0 {
		return spec, fmt.Errorf("%s: %s", wrong[0].Field, wrong[0].Message)
	}
	return spec, nil
}

func (c *chartAllow) run(cmd *cobra.Command) error {
	spec, err := c.spec(cmd.InOrStdin())
	if err != nil {
		return mistake(err)
	}
	store, k, config, err := c.open()
	if err != nil {
		return err
	}
	ctx, out := cmd.Context(), cmd.OutOrStdout()
	grant, err := c.grant(ctx, config, store, spec)
	if err != nil {
		return err
	}
	if err := showGrant(out, grant); err != nil || c.dryRun {
		return err
	}
	switch {
	case c.yes:
	case !cli.Terminal(cmd.InOrStdin()):
		return mistake(errors.New("this gives the agent these rights: add --yes"))
	case !cli.Confirm(cmd.InOrStdin(), cmd.ErrOrStderr(), "Give the agent these rights, and allow the chart?"):
		return errors.New("nothing was changed: the answer was not yes")
	}
	// Without the rule the rights are of no use to a Runner.
	if err := store.Put(ctx, grant); err != nil {
		return err
	}
	rule := grant.Rule
	source, err := c.place.edit(ctx, k, func(text []byte, preset string) (with []byte, err error) {
		with, rule, err = policy.WithRule(text, preset, grant.Rule)
		return with, err
	})
	if err != nil {
		return err
	}
	record(cmd, k, runnerapi.AuditRecord{Command: "chart-allow", Namespace: c.key.Namespace, Name: c.key.Name}, rule)
	cli.Say(out, "Allowed by rule %q of %s. To take it back: pipeops-agent chart revoke %s -n %s", grant.Rule.Name, source, c.key.Name, c.key.Namespace)
	return nil
}

// grant renders the chart.
func (c *chartAllow) grant(ctx context.Context, config *rest.Config, store chartgrant.Store, spec runnerapi.ReleaseSpec) (chartgrant.Grant, error) {
	if err := store.Managed(ctx, c.key.Namespace); err != nil {
		return chartgrant.Grant{}, err
	}
	releases := helm.New(config, helm.Options{
		Namespace: c.namespace, ServiceAccount: c.account,
		Charts: repository.Options{HTTPHosts: c.httpHosts, Guard: egress.Guard{Hosts: egress.EveryHost}},
	})
	preview, err := releases.Preview(ctx, c.key, spec)
	if err != nil {
		return chartgrant.Grant{}, err
	}
	return chartgrant.New(ctx, c.key, c.runners, preview, store.Rules)
}

// showGrant prints the rights that the agent gets, and the rule.
func showGrant(w io.Writer, g chartgrant.Grant) error {
	cli.Say(w, "Chart %s %s as release %s, for Runner %s. The agent gets these rights:\n", g.Chart.Name, g.Chart.Version, g.Key, strings.Join(g.Runners, ", "))
	out := cli.Output{Format: "table"}
	err := out.Write(w, nil, func(w io.Writer) {
		cli.Row(w, "WHERE", "VERBS", "ON", "NAMES", "FOR", "ATTENTION")
		for _, r := range g.Rights {
			where := g.Key.Namespace
			if r.Cluster {
				where = "cluster"
			}
			cli.Row(w, where, strings.Join(r.Verbs, ","), r.On(), strings.Join(r.ResourceNames, ","), r.For, r.Danger())
		}
	})
	if err != nil {
		return err
	}
	return printRule(w, "\nThe policy gets this rule:\n\n", g.Rule)
}
