package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

func newAgents(a *app) *cobra.Command {
	cmd := newAgentList(a, "agents")
	cmd.Example = "  pipeops-controlplane agents\n  pipeops-controlplane agents show shop"
	cmd.AddCommand(newAgentsShow(a))
	return cmd
}

// newAgentList returns the command agents, and also agent list, for users who know token list and
// runner list.
func newAgentList(a *app, use string) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:     use,
		Short:   "List agents and pending registrations",
		Example: "  pipeops-controlplane agent list -o json",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				agents, err := admin.Agents(ctx)
				if err != nil {
					return err
				}
				waiting, err := admin.Enrolments(ctx)
				if err != nil {
					return err
				}
				if a.none(out, len(agents)+len(waiting), "no agents yet; `pipeops-controlplane token create` makes a token to register one with") {
					return nil
				}
				err = out.Write(a.out, agentEntries(agents, waiting), func(w io.Writer) {
					agentTable(w, agents)
					waitingTable(w, waiting)
					cloneTable(w, agents)
				})
				if len(waiting) > 0 && out.Table() {
					a.say("compare KEY with what the agent says in its log; then `pipeops-controlplane agent approve ID`, or `agent deny ID`")
				}
				return err
			})
		},
	}
	out.Add(cmd)
	return cmd
}

func agentTable(w io.Writer, agents []announce.Agent) {
	if len(agents) == 0 {
		return
	}
	cli.Row(w, "NAME", "ID", "STATE", "KUBERNETES", "NODES", "CPU", "MEMORY", "AGENT", "UPDATE", "LAST SEEN")
	for _, g := range agents {
		cli.Row(w, g.Name, g.ID, g.State, g.KubernetesVersion, g.Capacity.Nodes, cli.Cores(g.Capacity.CPUMillis),
			cli.Mebibytes(g.Capacity.MemoryBytes), g.AgentVersion, updateState(g.Update), cli.Ago(g.LastSeen))
	}
}

// updateState returns a short state of an agent's self-update; agents show has the reason.
func updateState(u *announce.AgentUpdate) string {
	switch {
	case u == nil:
		return "off"
	case u.To == "":
		return u.State
	}
	return u.State + " " + u.To
}

// listOf turns a nil list into an empty one, for JSON.
func listOf[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
