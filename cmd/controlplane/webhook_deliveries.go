package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// deliveryLine is a delivery as it is shown.
type deliveryLine struct {
	EventID   string              `json:"eventId"`
	Type      string              `json:"type"`
	AgentID   string              `json:"agentId"`
	Sequence  uint64              `json:"sequence"`
	State     store.DeliveryState `json:"state"`
	Attempts  int                 `json:"attempts"`
	CreatedAt time.Time           `json:"createdAt"`
	TriedAt   time.Time           `json:"triedAt,omitzero"`
	NextAt    time.Time           `json:"nextAt,omitzero"`
	Status    int                 `json:"status,omitempty"`
	Error     string              `json:"error,omitempty"`
}

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
		Args: exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch store.DeliveryState(state) {
			case "", store.DeliveryPending, store.DeliveryDelivered, store.DeliveryGivenUp:
			default:
				return usageError{errors.New("--state: is none of pending, delivered, 'given up'")}
			}
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				list, err := admin.WebhookDeliveries(ctx, args[0], store.DeliveryState(state), max(limit, 1))
				if err != nil {
					return err
				}
				lines := make([]deliveryLine, len(list))
				for i, d := range list {
					lines[i] = deliveryLine{d.EventID, d.Type, d.AgentID, d.Sequence, d.State, d.Attempts, d.CreatedAt, d.TriedAt, d.NextAt, d.Status, d.Error}
					if d.State != store.DeliveryPending || d.Attempts == 0 {
						lines[i].NextAt = time.Time{}
					}
				}
				return out.Write(a.out, lines, func(w io.Writer) { deliveryTable(w, lines) })
			})
		},
	}
	cmd.Flags().StringVar(&state, "state", "", "list only deliveries that are pending, delivered or 'given up'")
	cmd.Flags().IntVar(&limit, "limit", 50, "number of latest deliveries to list")
	out.Add(cmd)
	return cmd
}

func deliveryTable(w io.Writer, lines []deliveryLine) {
	cli.Row(w, "QUEUED", "TYPE", "AGENT", "SEQUENCE", "STATE", "ATTEMPTS", "NEXT", "LAST ERROR")
	for _, l := range lines {
		next := "-"
		if !l.NextAt.IsZero() {
			next = cli.Until(l.NextAt)
		}
		cli.Row(w, cli.Ago(l.CreatedAt), l.Type, l.AgentID, l.Sequence, l.State, l.Attempts, next, l.Error)
	}
}
