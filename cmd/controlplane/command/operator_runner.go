package command

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

func newOperatorRunners(a *app) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "runners",
		Short:   "List the operators who act as Runners in the console",
		Example: "  pipeops-controlplane operator runners",
		Args:    cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				found, err := operatorapi.ListActingOperators.Do(ctx, admin, struct{}{})
				if err != nil || a.none(out, len(found.Items), "no operator acts as a Runner; `pipeops-controlplane operator set-runner OPERATOR RUNNER` changes that") {
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

func newOperatorSetRunner(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "set-runner OPERATOR RUNNER",
		Short: "Have an operator act as a Runner in the console",
		Long: `Have an operator act as a Runner in the console: deploy, restart, scale and roll back Apps, and
read their logs. The Runner's grant and the policy of each cluster apply. The agents' audit logs
name both.

A person who signs in by OpenID Connect is openid/NAME.`,
		Example: `  pipeops-controlplane operator set-runner alice builder
  pipeops-controlplane operator set-runner openid/bob@example.com builder`,
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

func newOperatorUnsetRunner(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "unset-runner OPERATOR",
		Short:   "Have an operator act as no Runner",
		Long:    "Have an operator act as no Runner, from the next call.",
		Example: "  pipeops-controlplane operator unset-runner alice",
		Args:    cli.ExactArgs("OPERATOR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				in := operatorapi.UnsetOperatorRunnerInput{Body: operatorapi.UnsetOperatorRunnerBody{Operator: args[0]}}
				if _, err := operatorapi.UnsetOperatorRunner.Do(ctx, admin, in); err != nil {
					return err
				}
				a.say("operator %s acts as no Runner", args[0])
				return nil
			})
		},
	}
}
