package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func newCluster(a *app) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:               "cluster AGENT",
		Short:             "Describe an agent's cluster: nodes, pods, capacity and use",
		Example:           "  pipeops-runner cluster shop",
		Args:              exactArgs("AGENT"),
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				cluster, err := t.Cluster(ctx)
				if err != nil {
					return at(t, "", err)
				}
				return out.write(a.out, cluster, func(w io.Writer) { clusterTable(w, cluster) })
			})
		},
	}
	out.add(cmd)
	return cmd
}

func clusterTable(w io.Writer, c runnerapi.Cluster) {
	row(w, "Name:", c.Name)
	row(w, "Agent:", c.AgentID+" "+c.AgentVersion)
	row(w, "Kubernetes:", c.KubernetesVersion+" ("+c.Distribution+")")
	row(w, "Provider:", c.Provider)
	row(w, "Nodes:", fmt.Sprintf("%d, %d ready", c.Nodes.Total, c.Nodes.Ready))
	row(w, "Pods:", fmt.Sprintf("%d running of %d", c.Pods.Running, c.Pods.Allocatable))
	row(w, "CPU:", used(c.CPU, cores)+" cores")
	row(w, "Memory:", used(c.Memory, mebibytes))
}

func used(f runnerapi.ResourceFigure, show func(int64) string) string {
	if f.Used == nil {
		return "unknown of " + show(f.Allocatable)
	}
	return show(*f.Used) + " of " + show(f.Allocatable)
}
