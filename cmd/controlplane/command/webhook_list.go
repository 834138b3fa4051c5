package command

import (
	"cmp"
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/webhook"
)

func newWebhookList(a *app) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List webhooks with their waiting and given-up events",
		Example: "  pipeops-controlplane webhook list",
		Args:    cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				found, err := operatorapi.ListWebhooks.Do(ctx, admin, struct{}{})
				if err != nil {
					return err
				}
				lines := found.Items
				if a.none(out, len(lines), "no webhooks yet; `pipeops-controlplane webhook create NAME --url URL` makes one") {
					return nil
				}
				return out.Write(a.out, lines, func(w io.Writer) { webhookTable(w, lines) })
			})
		},
	}
	out.AddList(cmd)
	return cmd
}

func webhookTable(w io.Writer, lines []operatorapi.Webhook) {
	cli.Row(w, "NAME", "STATE", "FORMAT", "TYPES", "AGENTS", "WAITING", "GIVEN UP", "CREATED", "URL")
	for _, l := range lines {
		state, types, agents := "on", strings.Join(l.Types, ","), l.Agents
		if !l.DisabledAt.IsZero() {
			state = "off: " + l.Reason
		}
		types = cmp.Or(types, "all")
		if agents == "" {
			agents = "all"
		}
		cli.Row(w, l.Name, state, cmp.Or(l.Format, webhook.FormatCloudEvents), types, agents, l.Pending, l.GivenUp, cli.Ago(l.CreatedAt), l.URL)
	}
}
