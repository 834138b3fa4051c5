package command

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

func newOperatorSession(a *app) *cobra.Command {
	return cli.Group("session", "List and end operators' sessions in the console", newOperatorSessionList(a), newOperatorSessionDelete(a))
}

func newOperatorSessionList(a *app) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List operators' sessions in the console",
		Example: "  pipeops-controlplane operator session list",
		Args:    cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				found, err := operatorapi.ListConsoleSessions.Do(ctx, admin, struct{}{})
				if err != nil || a.none(out, len(found.Items), "no operator has a session in the console") {
					return err
				}
				return out.Write(a.out, found.Items, func(w io.Writer) {
					cli.Row(w, "NAME", "CREATED", "EXPIRES")
					for _, s := range found.Items {
						cli.Row(w, s.Operator, cli.Ago(s.CreatedAt), cli.Until(s.ExpiresAt))
					}
				})
			})
		},
	}
	out.AddList(cmd)
	return cmd
}

func newOperatorSessionDelete(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "delete OPERATOR",
		Short: "End all sessions of an operator in the console",
		Long: `End all sessions of an operator in the console, and the codes that would open further ones. A
copied cookie is refused from the next request.

The operator can sign in again. To prevent that, also revoke the certificate (operator revoke). For
a person who signs in by OpenID Connect, openid/NAME, take away the groups at the identity provider.`,
		Example: `  pipeops-controlplane operator session delete alice
  pipeops-controlplane operator session delete openid/bob@example.com`,
		Args: cli.ExactArgs("OPERATOR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				in := operatorapi.DeleteConsoleSessionsInput{Body: operatorapi.DeleteConsoleSessionsBody{Operator: args[0]}}
				done, err := operatorapi.DeleteConsoleSessions.Do(ctx, admin, in)
				if err != nil {
					return err
				}
				a.say("operator %s is signed out of the console; sessions ended: %d", args[0], done.Ended)
				return nil
			})
		},
	}
}
