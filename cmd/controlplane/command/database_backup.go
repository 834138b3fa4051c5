package command

import (
	"errors"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

func newDatabaseBackup(a *app) *cobra.Command {
	var keep int
	cmd := &cobra.Command{
		Use:   "backup FILE",
		Short: "Write a complete copy of the registry in SQLite to a file",
		Long: `Write a complete copy of the registry in SQLite to a file, which only you can read. The control
plane may serve meanwhile.

The command checks the copy and then replaces FILE. With --keep, it keeps earlier copies: FILE.1 is
the newest of them. The metric pipeops_controlplane_database_backup_timestamp_seconds has the time
of the last success.

The copy does not contain the other files of the data directory: back up ca.pem and gateway.key
once, and after each change of the CA. For PostgreSQL, use pg_dump.`,
		Example: "  pipeops-controlplane database backup --data-dir ./data --keep 7 /var/backups/controlplane.db",
		Args:    cli.ExactArgs("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if keep < 0 {
				return cli.Usage(errors.New("--keep: must not be negative"))
			}
			file, err := filepath.Abs(args[0])
			if err != nil {
				return err
			}
			data, err := a.data.Read()
			if err != nil {
				return err
			}
			if err := data.Backup(cmd.Context(), file, keep); err != nil {
				return err
			}
			a.say("backed up the registry to %s", file)
			return nil
		},
	}
	cmd.Flags().IntVar(&keep, "keep", 0, "how many earlier copies to keep, as FILE.1 and so on")
	return cmd
}
