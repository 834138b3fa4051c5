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
				tokens, err := admin.Tokens(ctx)
				if err != nil {
					return err
				}
				return out.Write(a.out, listOf(tokens), func(w io.Writer) { tokenTable(w, tokens) })
			})
		},
	}
	out.Add(cmd)
	return cmd
}

func tokenTable(w io.Writer, tokens []store.Token) {
	cli.Row(w, "ID", "NAME", "STATE", "USES", "EXPIRES", "LAST USED", "BY", "LABELS")
	for _, t := range tokens {
		uses := fmt.Sprint(t.Uses)
		if t.MaxUses > 0 {
			uses += fmt.Sprintf("/%d", t.MaxUses)
		}
		cli.Row(w, t.ID, t.Name, tokenState(t, time.Now()), uses, cli.Until(t.ExpiresAt), cli.Ago(t.LastUsedAt), t.LastUsedBy, cli.Labels(t.Labels))
	}
}

func tokenState(t store.Token, now time.Time) string {
	switch {
	case !t.RevokedAt.IsZero():
		return "revoked"
	case !t.ExpiresAt.IsZero() && now.After(t.ExpiresAt):
		return "expired"
	case t.MaxUses > 0 && t.Uses >= t.MaxUses:
		return "used up"
	}
	return "valid"
}
