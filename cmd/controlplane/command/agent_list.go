package command

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

func newAgentList(a *app) *cobra.Command {
	var out cli.Output
	var find operatorapi.ListAgentsInput
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List agents and pending registrations",
		Example: "  pipeops-controlplane agent list --search eu --selector env=prod,tier!=test\n  pipeops-controlplane agent list --wrong -o json",
		Args:    cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				list, err := operatorapi.ListAgents.Do(ctx, admin, find)
				if err != nil {
					return err
				}
				agents, waiting := list.Agents, list.Waiting
				if a.none(out, len(agents)+len(waiting)+all(list.States), "no agents yet; `pipeops-controlplane token create` makes a token to register one with") {
					return nil
				}
				err = out.Write(a.out, agentEntries(agents, waiting), func(w io.Writer) {
					agentTable(w, agents)
					checksTable(w, agents, list.FailedChecks)
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
	out.AddList(cmd)
	f := cmd.Flags()
	f.StringVar(&find.Search, "search", "", "words that an agent's name, ID, labels, versions, distribution or provider have")
	f.StringVarP(&find.Selector, "selector", "l", "", "only agents with these labels, such as env=prod,region in (eu,us)")
	f.StringVar(&find.State, "state", "", "only agents in this state: pending, online, offline, revoked")
	f.BoolVar(&find.Wrong, "wrong", false, "only agents that need attention: offline, in use twice, with a failed update or check, or a component that is not ready")
	return cmd
}

// all returns how many agents there are.
func all(states map[announce.State]int) (n int) {
	for _, count := range states {
		n += count
	}
	return n
}

func agentTable(w io.Writer, agents []announce.Agent) {
	if len(agents) == 0 {
		return
	}
	cli.Row(w, "NAME", "ID", "STATE", "KUBERNETES", "NODES", "CPU", "MEMORY", "AGENT", "UPDATE", "LAST SEEN")
	for _, g := range agents {
		cli.Row(w, g.Name, g.ID, g.State, g.KubernetesVersion, g.Capacity.Nodes, cli.Cores(g.Capacity.CPUMillis),
			cli.Memory(g.Capacity.MemoryBytes), g.AgentVersion, operatorapi.UpdateState(g.Update), cli.Ago(g.LastSeen))
	}
}

// checksTable names the agents whose own checks failed.
func checksTable(w io.Writer, agents []announce.Agent, failed map[string][]string) {
	for _, g := range agents {
		if names := failed[g.ID]; len(names) > 0 {
			cli.Say(w, "%s: failed checks: %s; see `pipeops-controlplane agent get %s`", g.Name, strings.Join(names, ", "), g.Name)
		}
	}
}

// listOf turns a nil list into an empty one, for JSON.
func listOf[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
