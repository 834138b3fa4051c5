package command

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
)

func newCARoot(a *app) *cobra.Command {
	cmd := cli.Group("root", "Keep the root CA's key offline", newCARootExport(a), newCARootImport(a))
	cmd.Long = `Keep the root CA's key offline.

The root CA signs the intermediate CAs, and nothing else. The intermediate CAs issue the
certificates of agents, Runners and the control plane. Without the root's key, the control plane
works on until its intermediate CAs end: three years, of which it warns during the last.

The root's key is needed for ca rotate start, and to renew the intermediate CAs.`
	cmd.Example = `  pipeops-controlplane ca root export root-ca.pem --yes
  pipeops-controlplane ca root import root-ca.pem`
	return cmd
}

func newCARootExport(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "export FILE",
		Short: "Move the root CA's key into a file, to be kept offline",
		Long: `Move the root CA's key into a file, to be kept offline. The file must not exist yet. The
command reads the file again before it removes the key from the control plane.

The file has the key in plain text: anyone who reads it can be this control plane, and any agent
and Runner of it. Keep it on an encrypted medium, and a second copy elsewhere. Delete backups of
the control plane that were made before: they have the key, too.`,
		Example: "  pipeops-controlplane ca root export root-ca.pem --yes",
		Args:    cli.ExactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				return cli.Usage(errors.New("--yes is missing: the command removes the root CA's key from the control plane"))
			}
			return a.rescue(cmd, func(ctx context.Context, admin *administration.Admin) error {
				status, err := admin.CA.ExportRoot(ctx, args[0])
				if err != nil {
					return err
				}
				a.say("%s has the root CA's key, in plain text, and the control plane no more. Keep it offline, with a second copy.", args[0])
				a.sayCA(status)
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "confirm that the control plane's own copy of the key is removed")
	return cmd
}

func newCARootImport(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Bring the root CA's key back, for a rotation or a renewal",
		Long: `Bring the root CA's key back from a file that ca root export wrote. Intermediate CAs that end
within a year are renewed at once. The file stays as it is.

Export the key again when you are done. After ca rotate start the export has two keys.`,
		Example: "  pipeops-controlplane ca root import root-ca.pem",
		Args:    cli.ExactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.rescue(cmd, func(ctx context.Context, admin *administration.Admin) error {
				status, renewed, err := admin.CA.ImportRoot(ctx, args[0])
				if err != nil {
					return err
				}
				a.say("The root CA's key is back. Export it again when you are done: pipeops-controlplane ca root export FILE --yes")
				if renewed {
					a.say("The intermediate CAs were renewed.")
				}
				a.sayCA(status)
				return nil
			})
		},
	}
}
