package command

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

func newTokenList(a *app) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List enrolment tokens, without their secrets",
		Example: "  pipeops-controlplane token list -o yaml",
		Args:    cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				found, err := operatorapi.ListTokens.Do(ctx, admin, struct{}{})
				if err != nil {
					return err
				}
				list := found.Items
				if a.none(out, len(list), "no tokens yet; `pipeops-controlplane token create` makes one") {
					return nil
				}
				return out.Write(a.out, list, func(w io.Writer) { tokenTable(w, list) })
			})
		},
	}
	out.AddList(cmd)
	return cmd
}

func tokenTable(w io.Writer, tokens []operatorapi.Token) {
	cli.Row(w, "ID", "NAME", "STATE", "USES LEFT", "ENDS", "LAST USED", "BY", "APPROVAL", "SERVICE ACCOUNT", "LABELS")
	for _, t := range tokens {
		left := "any"
		if t.UsesLeft != nil {
			left = fmt.Sprintf("%d of %d", *t.UsesLeft, t.MaxUses)
		}
		approval := "no"
		if t.Approve {
			approval = "yes"
		}
		cli.Row(w, t.ID, t.Name, t.State, left, tokenEnd(t), cli.Ago(t.LastUsedAt), usedBy(t), approval, serviceAccount(t), cli.Labels(t.Labels))
	}
}

// tokenEnd returns when a token ends by time, and why.
func tokenEnd(t operatorapi.Token) string {
	if t.RotatedTo != "" {
		return cli.Until(t.RotatedAt) + ", for " + t.RotatedTo
	}
	return cli.Until(t.ExpiresAt)
}

// serviceAccount returns what stands for a token's secret; empty for a token with one.
func serviceAccount(t operatorapi.Token) string {
	if t.Kubernetes == nil {
		return ""
	}
	return t.Kubernetes.ServiceAccount
}

func usedBy(t operatorapi.Token) string {
	if t.LastUsedByName == "" {
		return t.LastUsedBy
	}
	return t.LastUsedByName + " (" + t.LastUsedBy + ")"
}
