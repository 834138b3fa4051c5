// Postgres runs a private PostgreSQL for tests and experiments.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/test/postgres"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use: "postgres", Short: "A private PostgreSQL for tests: TLS on loopback, no systemd needed",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(&cobra.Command{
		Use: "install", Short: "Install PostgreSQL, unless it is there (run does so too)", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return postgres.Install(cmd.Context(), os.Stderr) },
	}, &cobra.Command{
		Use: "run", Short: "Run a new server with one empty database until interrupted, and print its URL", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd.Context()) },
	})
	return root
}

func run(ctx context.Context) error {
	s, err := postgres.Start(ctx, postgres.Options{Out: os.Stderr})
	if err != nil {
		return err
	}
	d, err := s.NewDatabase(ctx)
	if err == nil {
		fmt.Println(d.URL()) // the password is only for this server and cannot be read elsewhere
		<-ctx.Done()
	}
	return errors.Join(err, s.Stop())
}
