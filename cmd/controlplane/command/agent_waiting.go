package command

import (
	"io"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// agentEntry is an agent as agent list has it in JSON and YAML: one that waits for
// approval is pending and has an approval.
type agentEntry struct {
	announce.Agent
	Approval *store.Enrolment `json:"approval,omitempty"`
}

func agentEntries(agents []announce.Agent, waiting []operatorapi.Registration) []agentEntry {
	list := make([]agentEntry, 0, len(agents)+len(waiting))
	for _, g := range agents {
		list = append(list, agentEntry{Agent: g})
	}
	for i := range waiting {
		e := &waiting[i]
		list = append(list, agentEntry{Approval: &e.Enrolment, Agent: announce.Agent{
			ID: e.ID, Name: e.Name, State: announce.StatePending, Labels: e.Stated.Labels, AgentVersion: e.Stated.AgentVersion,
			KubernetesVersion: e.Stated.KubernetesVersion, Distribution: e.Stated.Distribution, Provider: e.Stated.Provider, LastSeen: e.LastAsked,
		}})
	}
	return list
}

func waitingTable(w io.Writer, waiting []operatorapi.Registration) {
	if len(waiting) == 0 {
		return
	}
	cli.Say(w, "\nWaiting for approval:")
	cli.Row(w, "NAME", "ID", "STATE", "CLUSTER", "FROM", "AGENT", "KEY", "TOKEN", "REPLACES", "SINCE", "LAST ASKED")
	for _, e := range waiting {
		cli.Row(w, e.Name, e.ID, e.State, controlapi.ShortUID(e.ClusterUID), e.Address, e.Stated.AgentVersion,
			controlapi.ShortPrint(e.Key), e.TokenID, e.Replaces, cli.Ago(e.AskedAt), cli.Ago(e.LastAsked))
	}
}

func cloneTable(w io.Writer, agents []announce.Agent) {
	first := true
	for _, g := range agents {
		for _, c := range g.Clones {
			if first {
				first = false
				cli.Say(w, "\nIdentities in use twice:")
				cli.Row(w, "NAME", "ID", "THE COPY IS", "CALLED", "FROM", "SINCE", "LAST SEEN")
			}
			cli.Row(w, g.Name, g.ID, operatorapi.WhereClone(c), c.Instance, c.Address, cli.Ago(c.FirstSeen), cli.Ago(c.LastSeen))
		}
	}
}
