package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

func newConsole(a *app) *cobra.Command {
	var noBrowser bool
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Open the console, the control plane's pages for operators, in a browser",
		Long: `Sign a browser in to the console as the operator of the context or of --credentials, and open it.

The printed link signs one browser in, once, within 5 minutes. The session may do what the
operator's role allows. It ends after 12 hours, when you sign out, and when the operator is revoked
or gets new credentials.`,
		Example: `  pipeops-controlplane console
  pipeops-controlplane console --credentials alice.json --no-browser`,
		Args: cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error {
				made, err := operatorapi.CreateConsoleCode.Do(ctx, admin, operatorapi.ConsoleCodeInput{})
				if err != nil {
					return err
				}
				link := made.Address + "#" + made.Code
				cli.Say(a.out, "%s", link)
				a.say("The link signs one browser in, once, until %s.", cli.Time(made.ExpiresAt))
				if !noBrowser && !cli.OpenBrowser(ctx, link) {
					a.say("No browser was found. Open the link yourself.")
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&noBrowser, "no-browser", false, "print the link only")
	return cmd
}
