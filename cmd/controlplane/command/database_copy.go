package command

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
)

func newDatabase(a *app) *cobra.Command {
	return cli.Group("database", "Back up the registry, and manage where it is stored", newDatabaseBackup(a), newDatabaseCopy(a))
}

func newDatabaseCopy(a *app) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use:   "copy",
		Short: "Move the registry from SQLite to PostgreSQL",
		Long: `Move the registry from SQLite in the data directory to PostgreSQL. --database or
--database-file names the PostgreSQL database. The command moves everything or nothing.

Stop the control plane first. Start it with the same flags afterwards.

The PostgreSQL database must be empty. The SQLite file stays in the data directory under another
name, and the directory records where the registry is.`,
		Example: "  pipeops-controlplane database copy --data-dir ./data --database-file ./database-url",
		Args:    cli.ExactArgs(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return a.copyDatabase(cmd.Context(), out) },
	}
	out.Add(cmd)
	return cmd
}

func (a *app) copyDatabase(ctx context.Context, out cli.Output) error {
	data, err := a.data.Read()
	if err != nil {
		return err
	}
	if !data.Database.Given() {
		return cli.Usage(errors.New("no PostgreSQL to copy to: give --database or --database-file"))
	}
	done, kept, err := datadir.MoveDatabase(ctx, data)
	if err != nil {
		return err
	}
	err = out.Write(a.out, done, func(w io.Writer) {
		cli.Row(w, "TABLE", "ROWS")
		for _, c := range done {
			cli.Row(w, c.Table, c.Rows)
		}
	})
	a.say("the registry is in %s now; %s is what it was, remove it when you are content", data.Database, kept)
	return err
}
