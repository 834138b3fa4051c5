package command

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

func newWebhookDeliveries(a *app) *cobra.Command {
	var out cli.Output
	var state string
	var limit int
	cmd := &cobra.Command{
		Use:   "deliveries NAME",
		Short: "List the deliveries of a webhook",
		Long: `List the deliveries of a webhook, newest first: pending, delivered and given up. The control
plane keeps the last 1000 that were delivered and the last 1000 that were given up.`,
		Example: `  pipeops-controlplane webhook deliveries pager
  pipeops-controlplane webhook deliveries pager --state 'given up' -o json`,
		Args: cli.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch store.DeliveryState(state) {
			case "", store.DeliveryPending, store.DeliveryDelivered, store.DeliveryGivenUp:
			default:
				return cli.Usage(errors.New("--state: is none of pending, delivered, 'given up'"))
			}
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				found, err := operatorapi.ListDeliveries.Do(ctx, admin, operatorapi.DeliveriesInput{
					Webhook: args[0], State: store.DeliveryState(state), Limit: max(limit, 1),
				})
				if err != nil {
					return err
				}
				lines := found.Items
				return out.Write(a.out, lines, func(w io.Writer) { deliveryTable(w, lines) })
			})
		},
	}
	cmd.Flags().StringVar(&state, "state", "", "list only deliveries that are pending, delivered or 'given up'")
	cmd.Flags().IntVar(&limit, "limit", 50, "number of latest deliveries to list")
	out.AddList(cmd)
	return cmd
}

func deliveryTable(w io.Writer, lines []operatorapi.Delivery) {
	cli.Row(w, "QUEUED", "TYPE", "AGENT", "SEQUENCE", "STATE", "ATTEMPTS", "NEXT", "LAST ERROR")
	for _, l := range lines {
		next := "-"
		if !l.NextAt.IsZero() {
			next = cli.Until(l.NextAt)
		}
		cli.Row(w, cli.Ago(l.CreatedAt), l.Type, l.AgentID, l.Sequence, l.State, l.Attempts, next, l.Error)
	}
}
