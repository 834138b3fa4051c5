package command

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

func newOfferList(a *app) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List offered versions, and how far the agents are",
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
				return out.Write(a.out, listOf(releases), func(w io.Writer) { a.releaseTable(w, releases) })
			})
		},
	}
	out.AddList(cmd)
	return cmd
}

func (a *app) releaseTable(w io.Writer, releases []administration.Offered) {
	cli.Row(w, "ID", "VERSION", "OFFERED", "EXPIRES", "TO", "TAKEN", "FAILED", "URL")
	for _, r := range releases {
		p := r.Progress
		cli.Row(w, r.ID, r.Version, cli.Ago(r.OfferedAt), cli.Until(r.ExpiresAt), offeredTo(r.Release), fmt.Sprintf("%d/%d", p.Taken, p.Agents), strconv.Itoa(p.Failed), r.URL)
	}
	for _, r := range releases {
		for _, f := range r.Progress.Failures {
			a.say("%s", cli.Printable(r.Version+" "+f.State+" on "+f.Name+": "+f.Reason))
		}
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
