package command

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/kube"
	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// policyAllow adds a rule to the policy.
type policyAllow struct {
	ownCluster
	place  policyPlace
	rule   policy.Rule
	dryRun bool
}

func newPolicyAllow() *cobra.Command {
	c := &policyAllow{}
	cmd := &cobra.Command{
		Use:   "allow COMMAND... --runner RUNNER",
		Short: "Let Runners carry out commands",
		Long: "Put a rule before the others of the policy that lets Runners carry out commands. A refusal names\n" +
			"the command line.\n\n" +
			"COMMAND is a name that `pipeops-agent policy commands` lists, or a command of pipeops-runner.\n" +
			"The command works with your rights in the cluster; the agent cannot change the policy. A rule of\n" +
			"the same name is replaced, and its bounds are kept. To take a rule back, delete it from the policy.",
		Args: cobra.ArbitraryArgs,
		Example: `  pipeops-agent policy allow exec --runner dev -n staging
  pipeops-agent policy allow apply "applyset delete" --runner ci -n shop --kind ConfigMap,Deployment.apps --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.complete(args); err != nil {
				return mistake(err)
			}
			return c.run(cmd)
		},
	}
	c.add(cmd)
	fl := cmd.Flags()
	c.place.add(fl)
	fl.StringSliceVar(&c.rule.Runners, "runner", nil, "names of the Runners; * stands for any text")
	fl.StringSliceVarP(&c.rule.Namespaces, "namespace", "n", nil, "namespaces in which the commands are allowed (default: all)")
	fl.StringSliceVar(&c.rule.Kinds, "kind", nil, "kinds that manifests and charts may have, as Deployment.apps; * for any but ClusterRoles")
	fl.StringVar(&c.rule.Name, "name", "", "name of the rule (default: what it allows)")
	fl.BoolVar(&c.dryRun, "dry-run", false, "show the rule, and change nothing")
	return cmd
}

// complete checks the rule, and gives it a name.
func (c *policyAllow) complete(args []string) error {
	if len(args) == 0 {
		return errors.New("no command: name one that `pipeops-agent policy commands` lists")
	}
	if len(c.rule.Runners) == 0 {
		return errors.New("no Runner: give --runner NAME, or --runner '*' for all")
	}
	for _, arg := range args {
		id, err := commandID(arg)
		if err != nil {
			return err
		}
		if policy.BringsObjects(id) && len(c.rule.Kinds) == 0 {
			return fmt.Errorf("%s brings objects: name their kinds with --kind, such as Deployment.apps, or '*' for any", arg)
		}
		c.rule.Commands = append(c.rule.Commands, id)
	}
	slices.Sort(c.rule.Commands)
	c.rule.Commands = slices.Compact(c.rule.Commands)
	if c.rule.Name == "" {
		c.rule.Name = policy.NameOf(c.rule)
	}
	return nil
}

func (c *policyAllow) run(cmd *cobra.Command) error {
	if _, _, err := policy.WithRule(nil, "", c.rule); err != nil {
		return mistake(err)
	}
	if c.dryRun {
		return printRule(cmd.OutOrStdout(), "", c.rule)
	}
	var k *kube.Client
	var err error
	if c.place.file == "" {
		if k, err = c.client(); err != nil {
			return err
		}
	}
	rule := c.rule
	source, err := c.place.edit(cmd.Context(), k, func(text []byte, preset string) (with []byte, err error) {
		with, rule, err = policy.WithRule(text, preset, c.rule)
		return with, err
	})
	if err != nil {
		return err
	}
	if k != nil {
		record(cmd, k, runnerapi.AuditRecord{Command: "policy-allow", Name: rule.Name}, rule)
	}
	return printRule(cmd.OutOrStdout(), source+" has this rule before the others:\n\n", rule)
}

func printRule(w io.Writer, before string, rule policy.Rule) error {
	text, err := policy.RuleText(rule)
	if err != nil {
		return err
	}
	return cli.Print(w, before+text+"\n")
}
