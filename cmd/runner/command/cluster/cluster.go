// Package cluster has the commands about the cluster: nodes, namespaces, events and the audit log.
package cluster

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// NewCluster returns the command cluster.
func NewCluster(a *cmdutil.CLI) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:               "cluster [AGENT]",
		Short:             "Describe an agent's cluster: nodes, pods, capacity and use",
		Example:           "  pipeops-runner cluster shop",
		Args:              cli.ExactArgs("AGENT"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error {
				cluster, err := t.Cluster().Get(ctx)
				if err != nil {
					return cmdutil.At(t, "", err)
				}
				return out.Write(a.Out, cluster, func(w io.Writer) { clusterTable(w, cluster) })
			})
		},
	}
	out.Add(cmd)
	return cmd
}

func clusterTable(w io.Writer, c runnerapi.Cluster) {
	cli.Row(w, "Name:", c.Name)
	cli.Row(w, "Agent:", c.AgentID+" "+c.AgentVersion)
	cli.Row(w, "Kubernetes:", c.KubernetesVersion+" ("+c.Distribution+")")
	cli.Row(w, "Provider:", c.Provider)
	cli.Row(w, "Nodes:", fmt.Sprintf("%d, %d ready", c.Nodes.Total, c.Nodes.Ready))
	cli.Row(w, "Pods:", fmt.Sprintf("%d running of %d", c.Pods.Running, c.Pods.Allocatable))
	cli.Row(w, "CPU:", used(c.CPU, cli.Cores)+" cores")
	cli.Row(w, "Memory:", used(c.Memory, cli.Memory))
	if p := c.Policy; p != nil {
		state := p.State
		if p.Message != "" {
			state += ": " + p.Message
		}
		cli.Row(w, "Policy:", state)
	}
}

func used(f runnerapi.ResourceFigure, show func(int64) string) string {
	if f.Used == nil {
		return "unknown of " + show(f.Allocatable)
	}
	return show(*f.Used) + " of " + show(f.Allocatable)
}
