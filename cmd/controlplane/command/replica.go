package command

import (
	"context"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/peerlink"
)

func newReplica(a *app) *cobra.Command {
	return cli.Group("replica", "Show the control planes that serve the database", newReplicaList(a))
}

func newReplicaList(a *app) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the control planes that serve the database, with what is wrong",
		Long: `List the control planes that serve the database, with what is wrong. The one that answers asks
each other for its own checks, so the command does not work with --offline.`,
		Example: `  pipeops-controlplane replica list

  # All checks of each:
  pipeops-controlplane replica list -o json | jq '.[] | {name, checks}'`,
		Args: cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				found, err := operatorapi.ListReplicas.Do(ctx, admin, struct{}{})
				if err != nil {
					return err
				}
				return out.Write(a.out, listOf(found.Items), func(w io.Writer) { a.replicaTable(w, found.Items) })
			})
		},
	}
	out.AddList(cmd)
	return cmd
}

func (a *app) replicaTable(w io.Writer, replicas []peerlink.Replica) {
	cli.Row(w, "NAME", "STATE", "LEADS", "AGENTS", "VERSION", "STARTED", "EDGE")
	for _, r := range replicas {
		leads, agents := "no", strconv.Itoa(r.Agents)
		if r.Leads {
			leads = "yes"
		}
		if r.State == peerlink.Unreachable {
			leads, agents = "?", "?"
		}
		cli.Row(w, r.Title(), r.State, leads, agents, r.Version, cli.Ago(r.StartedAt), r.Edge)
	}
	for _, r := range replicas {
		for _, wrong := range r.Wrong() {
			a.say("%s", cli.Printable(r.Title()+": "+wrong))
		}
	}
}
