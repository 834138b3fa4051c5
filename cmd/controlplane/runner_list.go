package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

func newRunnerList(a *app) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List Runners",
		Example: "  pipeops-controlplane runner list",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				runners, err := admin.Runners(ctx)
				if err != nil {
					return err
				}
				if a.none(out, len(runners), "no Runners yet; `pipeops-controlplane runner create NAME -o FILE` makes the credentials of one") {
					return nil
				}
				return out.Write(a.out, listOf(runners), func(w io.Writer) { runnerTable(w, runners) })
			})
		},
	}
	out.Add(cmd)
	return cmd
}

func runnerTable(w io.Writer, runners []store.Runner) {
	cli.Row(w, "NAME", "STATE", "AGENTS", "CREATED", "EXPIRES")
	for _, r := range runners {
		state := "valid"
		if !r.RevokedAt.IsZero() {
			state = "revoked"
		}
		agents := r.Agents
		if agents == "" {
			agents = "all"
		}
		cli.Row(w, r.Name, state, agents, cli.Ago(r.CreatedAt), cli.Until(r.ExpiresAt))
	}
}
