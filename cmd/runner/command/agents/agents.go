// Package agents has the commands about agents, which the control plane answers.
package agents

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// agentsCommand lists the agents, once or as they change.
type agentsCommand struct {
	*cmdutil.CLI
	out   cli.Output
	watch bool
	aside bool
}

// NewAgents returns the command agents.
func NewAgents(a *cmdutil.CLI) *cobra.Command {
	c := &agentsCommand{CLI: a}
	cmd := &cobra.Command{
		Use:   "agents",
		Short: "List agents, or watch them change",
		Long: `List the agents that the control plane knows.

With --watch, print changes as the control plane announces them over RabbitMQ: agents that come,
go and change, and Apps that become healthy or fail.

The watch reads the Runner's own queue, which has one reader at a time. If a service runs with
the same credentials, add --aside. The watch then takes no announcements away from the service.`,
		Example: "  pipeops-runner agents\n  pipeops-runner agents --watch -o json",
		Args:    cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.aside && !c.watch {
				return cli.Usage(errAside)
			}
			if c.watch {
				return c.runWatch(cmd.Context())
			}
			return c.run(cmd.Context())
		},
	}
	c.out.AddList(cmd)
	c.out.AddSelector(cmd)
	cmd.Flags().BoolVarP(&c.watch, "watch", "w", false, "print changes until interrupted")
	cmd.Flags().BoolVar(&c.aside, "aside", false, "with --watch: take no announcements away from the Runner's service")
	return cmd
}

func (c *agentsCommand) run(ctx context.Context) error {
	l, err := c.Login(ctx)
	if err != nil {
		return err
	}
	agents, err := l.Agents(ctx)
	if err != nil {
		return err
	}
	return c.out.Write(c.Out, agents, func(w io.Writer) {
		cli.Row(w, "NAME", "ID", "STATE", "KUBERNETES", "NODES", "CPU", "MEMORY", "AGENT", "LAST SEEN")
		for _, g := range agents {
			cli.Row(w, agentCells(g)...)
		}
		for _, g := range agents {
			for _, component := range g.Components {
				if !component.Ready {
					cli.Say(w, "%s: component %s", g.Name, component)
				}
			}
		}
		if len(agents) == 0 {
			c.Say("no agent is registered yet, or none that this Runner is granted: install one with a token of `pipeops-controlplane token create`")
		}
	})
}

func agentCells(g announce.Agent) []any {
	return []any{
		g.Name, g.ID, g.State, g.KubernetesVersion, g.Capacity.Nodes, cli.Cores(g.Capacity.CPUMillis),
		cli.Memory(g.Capacity.MemoryBytes), g.AgentVersion, cli.Ago(g.LastSeen),
	}
}
