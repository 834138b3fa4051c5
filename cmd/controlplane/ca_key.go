package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
)

func newCAKey(a *app) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "key -o FILE",
		Short: "Make the key with which control planes that share a database share a CA",
		Long: `Make a key: 32 random bytes, in base64, in a file that only you can read. All
control planes on one PostgreSQL get the same with --ca-key-file; the CA in the
database is encrypted with it. Without it the CA is lost: keep it, apart from the
backups of the database.`,
		Example: "  pipeops-controlplane ca key -o ./ca-key",
		Args:    exactArgs(),
		RunE: func(*cobra.Command, []string) error {
			if file == "" {
				return usageError{errors.New("-o is missing: the file to write, for example -o ./ca-key")}
			}
			if err := controlplane.MakeCAKey(file); err != nil {
				return err
			}
			a.say("%s holds a new key. Next: pipeops-controlplane serve --ca-key-file %s, with --database or --database-file", file, file)
			return nil
		},
	}
	cmd.Flags().StringVarP(&file, "output", "o", "", "file to write, which must not be there yet")
	return cmd
}
