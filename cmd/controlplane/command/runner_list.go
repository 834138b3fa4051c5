package command

import (
	"cmp"
	"context"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

func newRunnerList(a *app) *cobra.Command {
	var out cli.Output
	var all bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List Runners",
		Long:    "List the Runners that are not revoked. --all includes revoked Runners.",
		Example: "  pipeops-controlplane runner list\n  pipeops-controlplane runner list --all",
		Args:    cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				found, err := operatorapi.ListRunners.Do(ctx, admin, struct{}{})
				if err != nil {
					return err
				}
				known := found.Items
				runners := known
				if !all {
					runners = slices.DeleteFunc(slices.Clone(known), revoked)
				}
				if hidden := len(known) - len(runners); hidden > 0 {
					defer a.say("%d revoked not shown; --all shows them", hidden)
				}
				if a.none(out, len(runners), "no Runners; `pipeops-controlplane runner create NAME -o FILE` makes the credentials of one") {
					return nil
				}
				return out.Write(a.out, listOf(runners), func(w io.Writer) { runnerTable(w, runners) })
			})
		},
	}
	out.AddList(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "include revoked Runners")
	return cmd
}

func revoked(r operatorapi.Runner) bool { return !r.RevokedAt.IsZero() }

func runnerTable(w io.Writer, runners []operatorapi.Runner) {
	cli.Row(w, "NAME", "STATE", "AGENTS", "CREATED", "EXPIRES", "TTL", "ID TOKENS")
	for _, r := range runners {
		expires := ""
		if !r.ExpiresAt.IsZero() {
			expires = cli.Until(r.ExpiresAt)
		}
		cli.Row(w, r.Name, r.State(time.Now()), cmp.Or(r.Agents, "all"), cli.Ago(r.CreatedAt), expires, cli.Short(time.Duration(r.TTL)), r.OpenID.String())
	}
}
