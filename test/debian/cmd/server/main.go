// Command server installs the servers of Debian's packages that tests use, and runs a private one
// for experiments: `server install broker`, `server run postgres`.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/postgres"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	what := map[string]func(context.Context) error{
		"install broker":   func(ctx context.Context) error { return broker.Install(ctx, os.Stderr) },
		"install postgres": func(ctx context.Context) error { return postgres.Install(ctx, os.Stderr) },
		"run broker":       runBroker,
		"run postgres":     runPostgres,
	}
	err := errors.New("usage: server install|run broker|postgres")
	if do, known := what[strings.Join(os.Args[1:], " ")]; known {
		err = do(ctx)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// runBroker prints how to reach the broker, with passwords, since they are only for this broker and
// cannot be read elsewhere.
func runBroker(ctx context.Context) error {
	b, err := broker.Up(ctx, os.Stderr)
	if err != nil {
		return err
	}
	fmt.Printf("page          %s (user %s, password %s)\ncontrol plane %s\nrunner        %s\nca            %s\nlogs          %s\n",
		b.ManagementURL(), broker.UserControlPlane, b.Password(broker.UserControlPlane),
		b.URL(broker.UserControlPlane), b.URL(broker.UserRunner), b.CAFile(), b.LogDir())
	<-ctx.Done()
	return b.Down(context.WithoutCancel(ctx))
}

// runPostgres prints the URL of an empty database, password included for the same reason.
func runPostgres(ctx context.Context) error {
	s, err := postgres.Start(ctx, postgres.Options{Out: os.Stderr})
	if err != nil {
		return err
	}
	d, err := s.NewDatabase(ctx)
	if err == nil {
		fmt.Println(d.URL())
		<-ctx.Done()
	}
	return errors.Join(err, s.Stop())
}
