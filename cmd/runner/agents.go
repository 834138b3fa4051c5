package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// agentsCommand lists the agents, once or as they change.
type agentsCommand struct {
	*app
	out   cli.Output
	watch bool
	aside bool
}

func newAgents(a *app) *cobra.Command {
	c := &agentsCommand{app: a}
	cmd := &cobra.Command{
		Use:   "agents",
		Short: "List agents, or watch them change",
		Long: `List the agents that the control plane knows.

With --watch, print changes as the control plane announces them over RabbitMQ: agents that come,
go and change, and Apps that become healthy or fail.

The watch reads the Runner's own queue, which has one reader at a time. If a service runs with
the same credentials, add --aside. The watch then takes no announcements away from the service.`,
		Example: "  pipeops-runner agents\n  pipeops-runner agents --watch -o json",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.aside && !c.watch {
				return usageError{errAside}
			}
			if c.watch {
				return c.runWatch(cmd.Context())
			}
			return c.run(cmd.Context())
		},
	}
	c.out.Add(cmd)
	cmd.Flags().BoolVarP(&c.watch, "watch", "w", false, "print changes until interrupted")
	cmd.Flags().BoolVar(&c.aside, "aside", false, "with --watch: take no announcements away from the Runner's service")
	return cmd
}

func (c *agentsCommand) run(ctx context.Context) error {
	l, err := c.login()
	if err != nil {
		return err
	}
	agents, err := c.agents(ctx, l)
	if err != nil {
		return err
	}
	return c.out.Write(c.app.out, agents, func(w io.Writer) {
		cli.Row(w, "NAME", "ID", "STATE", "KUBERNETES", "NODES", "CPU", "MEMORY", "AGENT", "LAST SEEN")
		for _, g := range agents {
			cli.Row(w, agentCells(g)...)
		}
		if len(agents) == 0 {
			c.say("no agent is registered yet, or none that this Runner is granted: install one with a token of `pipeops-controlplane token create`")
		}
	})
}

func agentCells(g announce.Agent) []any {
	return []any{
		g.Name, g.ID, g.State, g.KubernetesVersion, g.Capacity.Nodes, cli.Cores(g.Capacity.CPUMillis),
		cli.Mebibytes(g.Capacity.MemoryBytes), g.AgentVersion, cli.Ago(g.LastSeen),
	}
}
