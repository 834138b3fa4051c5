package command

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

func newOperator(a *app) *cobra.Command {
	return cli.Group("operator", "Manage operators, who manage the control plane, and read what they did",
		newOperatorCreate(a), newOperatorList(a), newOperatorRevoke(a), newOperatorRunner(a), newOperatorSession(a), newOperatorAudit(a))
}

func newOperatorRevoke(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "revoke NAME",
		Short:   "Revoke an operator's certificate",
		Long:    "Revoke an operator's certificate. The control plane refuses it at once.\nThe only admin cannot be revoked.",
		Example: "  pipeops-controlplane operator revoke bob",
		Args:    cli.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				if _, err := operatorapi.RevokeOperator.Do(ctx, admin, operatorapi.OperatorInput{Operator: args[0]}); err != nil {
					return err
				}
				a.say("operator %s is revoked", args[0])
				return nil
			})
		},
	}
}

func newOperatorList(a *app) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List operators, including revoked ones",
		Example: "  pipeops-controlplane operator list",
		Args:    cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				found, err := operatorapi.ListOperators.Do(ctx, admin, struct{}{})
				if err != nil || a.none(out, len(found.Items), "no operators; the first start of `pipeops-controlplane serve` makes one") {
					return err
				}
				return out.Write(a.out, found.Items, func(w io.Writer) { operatorTable(w, found.Items) })
			})
		},
	}
	out.AddList(cmd)
	return cmd
}

func operatorTable(w io.Writer, list []store.Operator) {
	cli.Row(w, "NAME", "ROLE", "STATE", "CREATED", "EXPIRES")
	for _, o := range list {
		cli.Row(w, o.Name, o.Role, o.State(time.Now()), cli.Ago(o.CreatedAt), cli.Until(o.ExpiresAt))
	}
}
