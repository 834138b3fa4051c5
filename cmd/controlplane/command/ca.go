package command

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/castore"
)

func newCA(a *app) *cobra.Command {
	return cli.Group("ca", "Manage the certificate authority (CA)", newCAGet(a), newCARotate(a), newCARoot(a), newCAKey(a))
}

func newCAKey(a *app) *cobra.Command {
	return cli.Group("key", "Create the key of a CA that control planes share", newCAKeyCreate(a))
}

func newCAKeyCreate(a *app) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "create -o FILE",
		Short: "Create the key of a CA that control planes share",
		Long: `Create the key of a CA that control planes share, in a file that only you can read. The key is
32 random bytes in base64.

The key encrypts the CA in PostgreSQL. Give the same key with --ca-key-file to all control
planes that share the database. Without the key, the CA is lost. Keep the key, apart from the
backups of the database.`,
		Example: "  pipeops-controlplane ca key create -o ./ca-key",
		Args:    cli.ExactArgs(),
		RunE: func(*cobra.Command, []string) error {
			if file == "" {
				return cli.Usage(errors.New("-o is missing: the file to write, for example -o ./ca-key"))
			}
			if err := castore.MakeKey(file); err != nil {
				return err
			}
			a.say("%s holds a new key. Next: pipeops-controlplane serve --ca-key-file %s, with --database or --database-file", file, file)
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "file to write; it must not exist yet")
	return cmd
}
