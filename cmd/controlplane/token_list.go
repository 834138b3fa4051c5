package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

func newTokenList(a *app) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List enrolment tokens, without their secrets",
		Example: "  pipeops-controlplane token list -o yaml",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error {
				list, err := tokenList(ctx, admin, time.Now())
				if err != nil {
					return err
				}
				if a.none(out, len(list), "no tokens yet; `pipeops-controlplane token create` makes one") {
					return nil
				}
				return out.Write(a.out, list, func(w io.Writer) { tokenTable(w, list) })
			})
		},
	}
	out.Add(cmd)
	return cmd
}

// tokenEntry is a token as token list shows it.
type tokenEntry struct {
	store.Token
	State string `json:"state"`
	// UsesLeft is absent for any number.
	UsesLeft *int `json:"usesLeft,omitempty"`
	// LastUsedByName is the agent's name today.
	LastUsedByName string `json:"lastUsedByName,omitempty"`
}

func tokenList(ctx context.Context, admin *controlplane.Admin, now time.Time) ([]tokenEntry, error) {
	tokens, err := admin.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	agents, err := admin.Agents(ctx)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, g := range agents {
		names[g.ID] = g.Name
	}
	list := make([]tokenEntry, len(tokens))
	for i, t := range tokens {
		list[i] = tokenEntry{Token: t, State: t.State(now), LastUsedByName: names[t.LastUsedBy]}
		if t.MaxUses > 0 {
			left := max(0, t.MaxUses-t.Uses)
			list[i].UsesLeft = &left
		}
	}
	return list, nil
}

func tokenTable(w io.Writer, tokens []tokenEntry) {
	cli.Row(w, "ID", "NAME", "STATE", "USES LEFT", "ENDS", "LAST USED", "BY", "APPROVAL", "LABELS")
	for _, t := range tokens {
		left := "any"
		if t.UsesLeft != nil {
			left = fmt.Sprintf("%d of %d", *t.UsesLeft, t.MaxUses)
		}
		approval := "no"
		if t.Approve {
			approval = "yes"
		}
		cli.Row(w, t.ID, t.Name, t.State, left, tokenEnd(t), cli.Ago(t.LastUsedAt), usedBy(t), approval, cli.Labels(t.Labels))
	}
}

// tokenEnd returns when a token ends by time, and why.
func tokenEnd(t tokenEntry) string {
	if t.RotatedTo != "" {
		return cli.Until(t.RotatedAt) + ", for " + t.RotatedTo
	}
	return cli.Until(t.ExpiresAt)
}

func usedBy(t tokenEntry) string {
	if t.LastUsedByName == "" {
		return t.LastUsedBy
	}
	return t.LastUsedByName + " (" + t.LastUsedBy + ")"
}
