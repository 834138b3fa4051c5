package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/imagesignature"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newPolicy() *cobra.Command {
	return group("policy", "Check and change what the policy allows Runners to do", newPolicyCheck(), newPolicyAllow(), newPolicyCommands())
}

// group is a command that has subcommands, and does nothing by itself.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return mistake(cli.NoSubcommand(cmd, args))
		},
	}
	cmd.AddCommand(commands...)
	return cmd
}

// ownCluster is where the agent lives, for commands that need nothing else of
// its configuration.
type ownCluster struct{ kubeconfig, namespace string }

func (o *ownCluster) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "kubeconfig file (default: the pod's service account)")
	cmd.Flags().StringVar(&o.namespace, "agent-namespace", cmp.Or(os.Getenv("POD_NAMESPACE"), objectmeta.AgentNamespace), "namespace that holds the agent's own objects")
}

func (o *ownCluster) client() (*kube.Client, error) {
	cfg, err := kubernetesConfig(o.kubeconfig)
	if err != nil {
		return nil, err
	}
	return kube.New(cfg, kube.Options{Namespace: o.namespace})
}

// policyCheck tries a command against a policy.
type policyCheck struct {
	ownCluster
	place     policyPlace
	runner    string
	key       string
	namespace string
	release   string
	app       appFlags
	objects   objectFlags
}

func newPolicyCheck() *cobra.Command {
	c := &policyCheck{}
	cmd := &cobra.Command{
		Use:   "check [COMMAND]",
		Short: "Validate the policy, and check whether it allows a command",
		Long: "Validate the policy in a file or in the cluster, and check whether it allows COMMAND.\n\n" +
			"COMMAND is a name that `pipeops-agent policy commands` lists, or a command of pipeops-runner.\n" +
			"For example, deploy means put-app.\n\n" +
			"The exit code is 0 when the policy is valid and allows the command.",
		Args: cli.RangeArgs(0, "COMMAND"),
		Example: `  pipeops-agent policy check --file policy.yaml
  pipeops-agent policy check deploy --runner ci --namespace shop --image registry.example.com/shop/web:1.4.2
  pipeops-agent policy check --file policy.yaml --runner ci --key sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
  pipeops-agent policy check apply --file policy.yaml --runner ci --namespace shop --manifests shop.yaml
  pipeops-agent policy check "secret set" --runner ci --namespace shop
  kubectl -n pipeops exec deploy/pipeops-agent -- /pipeops-agent policy check scale --runner ci --namespace shop --replicas 20`,
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), cmd.OutOrStdout(), args) },
	}
	fl := cmd.Flags()
	c.add(cmd)
	c.place.add(fl)
	fl.StringVar(&c.runner, "runner", "", "name of the Runner that sends the command")
	fl.StringVar(&c.key, "key", "", "fingerprint of that Runner's key, to check whether the policy pins it")
	fl.StringVarP(&c.namespace, "namespace", "n", "", "namespace that the command affects")
	fl.StringVar(&c.release, "release", "", "name of the release that the command affects")
	c.objects.add(fl)
	c.app.add(fl)
	return cmd
}

func (c *policyCheck) run(ctx context.Context, out io.Writer, args []string) error {
	doc, source, err := c.place.read(ctx, &c.ownCluster)
	if err != nil {
		return fmt.Errorf("%s: %w", source, err)
	}
	p := policy.New(source)
	p.Set(doc, nil)
	if c.key != "" && !doc.Pinned(c.runner, c.key) {
		return fmt.Errorf("refused: %s pins no key %s of Runner %s (fix: add it to trust; docs/reference/policy.md)", source, c.key, cmp.Or(c.runner, "-"))
	}
	if len(args) == 0 {
		return cli.Print(out, strings.Join(append([]string{
			fmt.Sprintf("%s is sound: %s, %s", source, p.State().State, cli.Count(len(doc.Rules), "rule")),
		}, doc.Summary()...), "\n"))
	}
	i, err := c.intent(args[0])
	if err != nil {
		return wrong(err)
	}
	signed := 0
	p.SetImages(func(imagesignature.Request) error { signed++; return nil })
	rule, err := p.Explain(i)
	if err != nil {
		return fmt.Errorf("refused: %w", err)
	}
	said := fmt.Sprintf("allowed by rule %q: Runner %s may do %s", cmp.Or(rule, "-"), cmp.Or(c.runner, "-"), i.Command)
	if i.Command == runnerapi.ExecCall && p.Records(i) {
		said += "; the agent records its sessions"
	}
	if d := p.Approval(i); d > 0 {
		said += fmt.Sprintf("; the owner of the cluster has to approve it within %s", d)
	}
	if signed > 0 {
		said += "; the agent verifies the signatures of its images"
	}
	if s, err := p.Signers(i); err == nil && s != nil && policy.Fetches(i.Command) {
		said += fmt.Sprintf("; its commits must be signed by one of %s", cli.Count(len(s.Keys), "signer"))
	}
	return cli.Print(out, said)
}

// intent returns the command that is tried.
func (c *policyCheck) intent(command string) (runnerapi.Intent, error) {
	command, err := commandID(command)
	if err != nil {
		return runnerapi.Intent{}, err
	}
	access := policy.Commands()[command]
	i := runnerapi.Intent{Command: command, Access: access, Runner: c.runner, Namespace: c.namespace, Name: c.release, Recorded: true}
	return i, cmp.Or(c.objects.bring(&i), c.app.bring(&i))
}

// commandID returns the name that a policy has for a command, or for a command of pipeops-runner.
func commandID(name string) (string, error) {
	for _, call := range runnerapi.Calls() {
		if call.Command == name {
			name = call.ID
			break
		}
	}
	if _, known := policy.Commands()[name]; !known {
		return "", fmt.Errorf("%q is not a command (fix: use one that `pipeops-agent policy commands` lists)", name)
	}
	return name, nil
}

func newPolicyCommands() *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "commands",
		Short:   "List the commands that a policy can name",
		Args:    cli.ExactArgs(),
		Example: "  pipeops-agent policy commands",
		RunE: func(cmd *cobra.Command, _ []string) error {
			all := policy.Commands()
			return out.Write(cmd.OutOrStdout(), all, func(w io.Writer) {
				cli.Row(w, "COMMAND", "ACCESS")
				for _, name := range slices.Sorted(maps.Keys(all)) {
					cli.Row(w, name, all[name])
				}
			})
		},
	}
	out.Add(cmd)
	return cmd
}
