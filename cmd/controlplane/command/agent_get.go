package command

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// agentDetail is what agent get prints as JSON and YAML.
type agentDetail struct {
	announce.Agent
	Checks   *store.Checks   `json:"checks,omitempty"`
	Timeline []timelineEntry `json:"timeline"`
}

type timelineEntry struct {
	Sequence uint64        `json:"sequence"`
	Time     time.Time     `json:"time"`
	Type     announce.Type `json:"type"`
	Summary  string        `json:"summary,omitempty"`
}

func newAgentGet(a *app) *cobra.Command {
	var out cli.Output
	var events int
	cmd := &cobra.Command{
		Use:     "get AGENT",
		Short:   "Show an agent and the latest events of it and its Apps",
		Example: "  pipeops-controlplane agent get shop --events 50",
		Args:    cli.ExactArgs("AGENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				found, err := operatorapi.GetAgent.Do(ctx, admin, operatorapi.GetAgentInput{Agent: args[0], Events: max(events, 0)})
				if err != nil {
					return err
				}
				timeline, err := operatorapi.DecodeEvents(found.Events)
				if err != nil {
					return err
				}
				detail := agentDetail{Agent: found.Agent, Checks: found.Checks, Timeline: entries(timeline)}
				return out.Write(a.out, detail, func(w io.Writer) { detailTable(w, detail) })
			})
		},
	}
	out.Add(cmd)
	cmd.Flags().IntVar(&events, "events", 20, "number of latest events to show")
	return cmd
}

func entries(events []announce.Event) []timelineEntry {
	list := make([]timelineEntry, len(events))
	for i, e := range events {
		list[i] = timelineEntry{Sequence: e.Sequence, Time: e.Time, Type: e.Type, Summary: operatorapi.Summary(e)}
	}
	return list
}

func detailTable(w io.Writer, d agentDetail) {
	endpoint := ""
	if len(d.Endpoints) > 0 {
		endpoint = d.Endpoints[0].ServerName + " at " + d.Endpoints[0].Address
	}
	c := d.Capacity
	for _, line := range [][2]any{
		{"Name:", d.Name}, {"ID:", d.ID}, {"State:", d.State}, {"Labels:", cli.Labels(d.Labels)}, {"Reached as:", endpoint},
		{"Kubernetes:", strings.TrimSpace(strings.Join([]string{d.KubernetesVersion, d.Distribution, d.Provider}, " "))},
		{"Capacity:", fmt.Sprintf("%s, %s CPU, %s, %d of %d pods", cli.Count(c.Nodes, "node"), cli.Cores(c.CPUMillis), cli.Memory(c.MemoryBytes), c.RunningPods, c.Pods)},
		{"Agent:", d.AgentVersion}, {"Update:", operatorapi.UpdateDetail(d.Update)}, {"Registered:", cli.Time(d.RegisteredAt)}, {"Last seen:", cli.Ago(d.LastSeen)},
	} {
		cli.Row(w, line[0], line[1])
	}
	for _, c := range d.Components {
		cli.Row(w, "Component:", c)
	}
	for _, c := range d.Clones {
		cli.Row(w, "Copy:", fmt.Sprintf("%s, called %s, from %s, since %s, last seen %s", operatorapi.WhereClone(c), c.Instance, c.Address, cli.Ago(c.FirstSeen), cli.Ago(c.LastSeen)))
	}
	checkRows(w, d.Checks)
	cli.Row(w, "Timeline:", fmt.Sprintf("%d events", len(d.Timeline)))
	for _, e := range d.Timeline {
		cli.Row(w, "  "+cli.Time(e.Time), e.Type, e.Summary)
	}
}

// checkRows prints what the agent's own checks found; nothing for an agent that has sent nothing of
// them.
func checkRows(w io.Writer, checks *store.Checks) {
	if checks == nil {
		return
	}
	if len(checks.Findings) == 0 {
		cli.Row(w, "Checks:", "nothing is wrong")
	}
	for _, f := range checks.Findings {
		text := fmt.Sprintf("%s: %s: %s, since %s", f.Check, f.Status, f.Detail, cli.Ago(f.Since))
		if f.Fix != "" {
			text += " (fix: " + f.Fix + ")"
		}
		cli.Row(w, "Check:", text)
	}
}
