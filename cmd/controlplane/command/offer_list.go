package command

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

func newOfferList(a *app) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List offered versions",
		Example: "  pipeops-controlplane offer list",
		Args:    cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				found, err := operatorapi.ListReleases.Do(ctx, admin, struct{}{})
				if err != nil {
					return err
				}
				releases := found.Items
				if a.none(out, len(releases), "no versions are offered; `pipeops-controlplane offer create` offers one") {
					return nil
				}
				return out.Write(a.out, listOf(releases), func(w io.Writer) { releaseTable(w, releases) })
			})
		},
	}
	out.AddList(cmd)
	return cmd
}

func releaseTable(w io.Writer, releases []store.Release) {
	cli.Row(w, "ID", "VERSION", "OFFERED", "EXPIRES", "TO", "URL")
	for _, r := range releases {
		cli.Row(w, r.ID, r.Version, cli.Ago(r.OfferedAt), cli.Until(r.ExpiresAt), offeredTo(r), r.URL)
	}
}

// offeredTo describes the recipients of an offer.
func offeredTo(r store.Release) string {
	to := "all agents"
	if len(r.Agents) > 0 {
		to = strings.Join(r.Agents, ",")
	}
	if len(r.Labels) > 0 {
		to += " with " + cli.Labels(r.Labels)
	}
	return to
}
