package command

import (
	"context"
	"io"
	"os"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/span"
	"github.com/pipeops/pipeops-vm-agent/internal/tracing"
)

// trace begins the trace of one command line, if OpenTelemetry's variables name a destination. Its
// calls of the agent are part of the trace. The trace's name contains no arguments.
func trace(ctx context.Context, stderr io.Writer, root *cobra.Command, args []string) (context.Context, func(error), error) {
	traces, err := tracing.Start(ctx, "pipeops-runner", version, os.Getenv, zerolog.New(zerolog.ConsoleWriter{Out: stderr, NoColor: true}))
	if traces == nil {
		return ctx, func(error) {}, err
	}
	name := root.Name()
	if cmd, _, err := root.Find(args); err == nil {
		name = cmd.CommandPath()
	}
	ctx, done := span.Begin(ctx, traces.Provider(), name)
	return ctx, func(err error) {
		done(err)
		traces.Stop(ctx)
	}, nil
}
