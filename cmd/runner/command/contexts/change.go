package contexts

import (
	"cmp"
	"errors"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/contextfile"
)

func newSet(a *cmdutil.CLI) *cobra.Command {
	var d defaults
	cmd := &cobra.Command{
		Use: "set [NAME]", Short: "Set a context's default agent and namespace: by default, of the current one",
		Long: "Set a context's default agent and namespace: by default, of the current one. An empty text removes\n" +
			"the default.",
		Example: "  pipeops-runner context set --agent shop -n staging\n  pipeops-runner context set staging --agent \"\"",
		Args:    cli.RangeArgs(0, "NAME"), ValidArgsFunction: contextfile.Runner.Complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("agent") && !cmd.Flags().Changed("namespace") {
				return cli.Usage(errors.New("nothing to set: give --agent or --namespace"))
			}
			file, c, err := commands(a).Load(args)
			if err != nil {
				return err
			}
			d.apply(cmd, c)
			if err := file.Save(); err != nil {
				return err
			}
			a.Say("context %s: agent %s, namespace %s", c.Name, cmp.Or(c.Agent, "not set"), cmp.Or(c.Namespace, "not set"))
			return nil
		},
	}
	d.add(cmd)
	return cmd
}
