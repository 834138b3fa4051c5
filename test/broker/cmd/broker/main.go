// Command broker runs a private RabbitMQ for tests and the demo.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/test/broker"
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
	opts := broker.Options{Out: os.Stderr}
	root := &cobra.Command{
		Use:           "broker",
		Short:         "A private RabbitMQ for tests: AMQP over TLS on loopback, no systemd needed",
		Example:       "  broker up --name mine\n  broker ctl --name mine list_queues\n  broker down --name mine",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.PersistentFlags().StringVar(&opts.Name, "name", "default", "which broker")
	root.AddCommand(installCommand(&opts), upCommand(&opts), downCommand(&opts), ctlCommand(&opts))
	return root
}

func installCommand(opts *broker.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "install",
		Short: "Install RabbitMQ, unless it is there (up does so too)",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return broker.Install(cmd.Context(), opts.Out) },
	}
}

func upCommand(opts *broker.Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start it (installing RabbitMQ if need be) and wait until it accepts AMQP",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := broker.Up(cmd.Context(), *opts)
			if err != nil {
				return err
			}
			return show(b)
		},
	}
	cmd.Flags().StringSliceVar(&opts.Listen, "listen", nil, "more addresses to serve AMQP on")
	return cmd
}

func downCommand(opts *broker.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop it and remove all that it had",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b, err := broker.Open(opts.Name, opts.Out)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil {
				return err
			}
			return b.Down(cmd.Context())
		},
	}
}

func ctlCommand(opts *broker.Options) *cobra.Command {
	return &cobra.Command{
		Use:   "ctl -- ARGS",
		Short: "Run rabbitmqctl against it",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := broker.Open(opts.Name, opts.Out)
			if err != nil {
				return err
			}
			out, err := b.Ctl(cmd.Context(), args...)
			if err != nil {
				return err
			}
			_, err = os.Stdout.Write(out)
			return err
		},
	}
}

// show prints how to reach the broker, with passwords, since they are only for this broker and
// cannot be read elsewhere.
func show(b *broker.Broker) error {
	_, err := fmt.Printf("page          %s (user %s, password %s)\ncontrol plane %s\nrunner        %s\nca            %s\nlogs          %s\n",
		b.ManagementURL(), broker.UserControlPlane, b.Password(broker.UserControlPlane),
		b.URL(broker.UserControlPlane), b.URL(broker.UserRunner), b.CAFile(), b.LogDir())
	return err
}
