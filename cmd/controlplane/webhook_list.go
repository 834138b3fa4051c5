package main

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// webhookLine is a webhook as it is shown: without its secrets.
type webhookLine struct {
	Name         string    `json:"name"`
	URL          string    `json:"url"`
	Types        []string  `json:"types,omitempty"`
	Agents       string    `json:"agents,omitempty"`
	AllowHTTP    bool      `json:"allowHttp,omitempty"`
	AllowPrivate bool      `json:"allowPrivate,omitempty"`
	CreatedAt    time.Time `json:"createdAt"`
	DisabledAt   time.Time `json:"disabledAt,omitzero"`
	Reason       string    `json:"reason,omitempty"`
	Pending      int       `json:"pending"`
	GivenUp      int       `json:"givenUp"`
}

func lineOf(s controlplane.WebhookStatus) webhookLine {
	return webhookLine{
		Name: s.Name, URL: s.URL, Types: s.Types, Agents: s.Agents, AllowHTTP: s.AllowHTTP, AllowPrivate: s.AllowPrivate, CreatedAt: s.CreatedAt,
		DisabledAt: s.DisabledAt, Reason: s.Reason, Pending: s.Counts[store.DeliveryPending], GivenUp: s.Counts[store.DeliveryGivenUp],
	}
}

func newWebhookList(a *app) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List webhooks with their waiting and given-up events",
		Example: "  pipeops-controlplane webhook list",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				hooks, err := admin.Webhooks(ctx)
				if err != nil {
					return err
				}
				lines := make([]webhookLine, len(hooks))
				for i, h := range hooks {
					lines[i] = lineOf(h)
				}
				if a.none(out, len(lines), "no webhooks yet; `pipeops-controlplane webhook create NAME --url URL` makes one") {
					return nil
				}
				return out.Write(a.out, lines, func(w io.Writer) { webhookTable(w, lines) })
			})
		},
	}
	out.Add(cmd)
	return cmd
}

func webhookTable(w io.Writer, lines []webhookLine) {
	cli.Row(w, "NAME", "STATE", "TYPES", "AGENTS", "WAITING", "GIVEN UP", "CREATED", "URL")
	for _, l := range lines {
		state, types, agents := "on", strings.Join(l.Types, ","), l.Agents
		if !l.DisabledAt.IsZero() {
			state = "off: " + l.Reason
		}
		if types == "" {
			types = "all"
		}
		if agents == "" {
			agents = "all"
		}
		cli.Row(w, l.Name, state, types, agents, l.Pending, l.GivenUp, cli.Ago(l.CreatedAt), l.URL)
	}
}
