package command

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

func newOperatorRunner(a *app) *cobra.Command {
	return cli.Group("runner", "Choose the Runners as which operators act in the console", newOperatorRunnerList(a), newOperatorRunnerSet(a), newOperatorRunnerDelete(a))
}

func newOperatorRunnerList(a *app) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the operators who act as Runners in the console",
		Example: "  pipeops-controlplane operator runner list",
		Args:    cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				found, err := operatorapi.ListOperatorRunners.Do(ctx, admin, struct{}{})
				if err != nil || a.none(out, len(found.Items), "no operator acts as a Runner; `pipeops-controlplane operator runner set OPERATOR RUNNER` changes that") {
					return err
				}
				return out.Write(a.out, found.Items, func(w io.Writer) {
					cli.Row(w, "NAME", "RUNNER", "SET")
					for _, o := range found.Items {
						cli.Row(w, o.Operator, o.Runner, cli.Ago(o.SetAt))
					}
				})
			})
		},
	}
	out.AddList(cmd)
	return cmd
}

func newOperatorRunnerSet(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "set OPERATOR RUNNER",
		Short: "Have an operator act as a Runner in the console",
		Long: `Have an operator act as a Runner in the console: deploy, restart, scale and roll back Apps, and
read their logs. The Runner's grant and the policy of each cluster apply. The agents' audit logs
name both.

A person who signs in by OpenID Connect is openid/NAME.`,
		Example: `  pipeops-controlplane operator runner set alice builder
  pipeops-controlplane operator runner set openid/bob@example.com builder`,
		Args: cli.ExactArgs("OPERATOR", "RUNNER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				in := operatorapi.SetOperatorRunnerInput{Body: operatorapi.SetOperatorRunnerBody{Operator: args[0], Runner: args[1]}}
				if _, err := operatorapi.SetOperatorRunner.Do(ctx, admin, in); err != nil {
					return err
				}
				a.say("operator %s acts as Runner %s", args[0], args[1])
				return nil
			})
		},
	}
}

func newOperatorRunnerDelete(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "delete OPERATOR",
		Short:   "Have an operator act as no Runner",
		Long:    "Have an operator act as no Runner, from the next call.",
		Example: "  pipeops-controlplane operator runner delete alice",
		Args:    cli.ExactArgs("OPERATOR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				in := operatorapi.DeleteOperatorRunnerInput{Body: operatorapi.DeleteOperatorRunnerBody{Operator: args[0]}}
				if _, err := operatorapi.DeleteOperatorRunner.Do(ctx, admin, in); err != nil {
					return err
				}
				a.say("operator %s acts as no Runner", args[0])
				return nil
			})
		},
	}
}
