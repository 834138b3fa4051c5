package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// readLog is a method of the client that reads a log.
type readLog func(c *client.Client, ctx context.Context, key runnerapi.Key, opts runnerapi.LogOptions, emit func(runnerapi.LogLine) error) error

func newRunLogs(a *app, kind, short string, read readLog, name string) *cobra.Command {
	c := &logsCommand{app: a}
	cmd := &cobra.Command{
		Use: "logs AGENT NAME", Short: short,
		Long:              short + ". Lines are available as long as the pods are.",
		Example:           fmt.Sprintf("  pipeops-runner %[1]s logs shop %[2]s --tail 100\n  pipeops-runner %[1]s logs shop %[2]s -f --prefix", kind, name),
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			key := runnerapi.Key{Namespace: c.namespace, Name: args[1]}
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				if err := read(t.Client, ctx, key, c.opts, c.print); err != nil {
					return at(t, key.String(), err)
				}
				return nil
			})
		},
	}
	c.flags(cmd, "print new lines until the "+kind+" ends")
	return cmd
}

// removal is how a job or a pipeline is deleted.
type removal struct {
	do  func(c *client.Client, ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error
	see func(key runnerapi.Key) look
}

func newRunDelete(a *app, kind, short string, r removal, name string) *cobra.Command {
	var namespace string
	var write writing
	var wait waiting
	cmd := &cobra.Command{
		Use: "delete AGENT NAME", Short: short,
		Long:              short + ". The command waits until they are gone.",
		Example:           fmt.Sprintf("  pipeops-runner %s delete shop %s", kind, name),
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			key := runnerapi.Key{Namespace: namespace, Name: args[1]}
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error {
				if err := r.do(t.Client, ctx, key, write.options()); err != nil {
					return at(t, key.String(), err)
				}
				return a.deleted(ctx, t, kind, key, &write, &wait, r.see(key))
			})
		},
	}
	namespaceFlag(cmd, &namespace)
	wait.add(cmd, defaultWait)
	write.addWriting(cmd)
	return cmd
}
