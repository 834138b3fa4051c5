package cluster

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/tables"
)

func newNamespaceCreate(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	var write cmdutil.Writing
	var flags namespaceFlags
	cmd := &cobra.Command{
		Use:   "create [AGENT] NAMESPACE",
		Short: "Create or change a namespace that the agent manages",
		Long: `Create a namespace for the agent to manage, or change it. Settings that you do not give are
removed: labels, the quota and the default limits.

The pods of a namespace that the agent created are isolated, unless you give --network open. They
can be reached only from:

  - the same namespace
  - ingress controllers, the agent and nodes
  - namespaces labelled pipeops.io/ingress=allowed
  - the namespaces of --allow-from

Isolation requires a cluster network that supports network policies. An adopted namespace stays
open, unless you give --network isolated.`,
		Example: `  pipeops-runner namespace create shop staging --label team=web
  pipeops-runner namespace create shop staging --quota cpu=4,memory=8Gi,pods=50,storage=100Gi
  pipeops-runner namespace create shop staging --quota limits.memory=16Gi --default limits.memory=256Mi --allow-from monitoring`,
		Args:              cli.ExactArgs("AGENT", "NAMESPACE"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := flags.spec()
			if err != nil {
				return err
			}
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				ns, err := t.Namespaces().Set(ctx, args[1], spec, write.Options())
				if err != nil {
					return cmdutil.At(t, args[1], err)
				}
				if write.DryRun {
					a.Say("dry run: namespace %s would be accepted; nothing was changed", args[1])
				}
				return out.Write(a.Out, ns, func(w io.Writer) { tables.Namespaces(w, ns) })
			})
		},
	}
	out.Add(cmd)
	write.AddWriting(cmd)
	flags.add(cmd)
	return cmd
}
