package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

func newNamespaceCreate(a *app) *cobra.Command {
	var out cli.Output
	var write writing
	var flags namespaceFlags
	cmd := &cobra.Command{
		Use:   "create AGENT NAMESPACE",
		Short: "Create a namespace for the agent to manage, or change it",
		Long: `Create a namespace for the agent to manage, or change it. What is not given is taken away:
labels, the quota, the default limits.

Unless it says --network open, the pods of a namespace that the agent made can be reached
from the same namespace, from ingress controllers, from the agent, from nodes, from namespaces
labelled pipeops.io/ingress=allowed and from those of --allow-from, where the cluster's network
knows network policies. An adopted namespace stays open unless it says --network isolated.`,
		Example: `  pipeops-runner namespace create shop staging --label team=web
  pipeops-runner namespace create shop staging --quota cpu=4,memory=8Gi,pods=50,storage=100Gi
  pipeops-runner namespace create shop staging --quota limits.memory=16Gi --default limits.memory=256Mi --allow-from monitoring`,
		Args:              exactArgs("AGENT", "NAMESPACE"),
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			spec, err := flags.spec()
			if err != nil {
				return err
			}
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				ns, err := t.PutNamespace(ctx, args[1], spec, write.options())
				if err != nil {
					return at(t, args[1], err)
				}
				if write.dryRun {
					a.say("dry run: namespace %s would be taken; nothing was changed", args[1])
				}
				return out.Write(a.out, ns, func(w io.Writer) { namespaceTable(w, ns) })
			})
		},
	}
	out.Add(cmd)
	write.addWriting(cmd)
	flags.add(cmd)
	return cmd
}
