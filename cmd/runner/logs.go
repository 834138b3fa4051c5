package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// logsCommand prints an App's log.
type logsCommand struct {
	*app
	namespace  string
	opts       runnerapi.LogOptions
	prefix     bool
	timestamps bool
	json       bool
	raw        bool
}

func newLogs(a *app) *cobra.Command {
	c := &logsCommand{app: a}
	cmd := &cobra.Command{
		Use:   "logs AGENT NAME",
		Short: "Print or follow an App's log",
		Long: `Print the log of all pods of an App, interleaved by time.

With -f, the command continues until interrupted, also across restarts of the App and of the
agent.`,
		Example:           "  pipeops-runner logs shop web --tail 100\n  pipeops-runner logs shop web -f --since 10m\n  pipeops-runner logs shop web --previous",
		Args:              exactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.completeApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.opts.Follow && c.opts.Previous {
				return usageError{errors.New("-f and --previous do not go together: a run that is over cannot be followed")}
			}
			return a.on(cmd.Context(), args[0], func(ctx context.Context, t *target) error { return c.run(ctx, t, args[1]) })
		},
	}
	c.flags(cmd, "print new lines until interrupted")
	cmd.Flags().BoolVar(&c.opts.Previous, "previous", false, "print the log of the run before the last restart")
	return cmd
}

func (c *logsCommand) flags(cmd *cobra.Command, follow string) {
	f := cmd.Flags()
	namespaceFlag(cmd, &c.namespace)
	f.BoolVarP(&c.opts.Follow, "follow", "f", false, follow)
	f.IntVar(&c.opts.Tail, "tail", -1, "number of last lines of each pod; -1 for all")
	f.DurationVar(&c.opts.Since, "since", 0, "print only lines newer than this, e.g. 10m")
	f.StringVarP(&c.opts.Container, "container", "c", "", "container (default: the App's own)")
	f.BoolVar(&c.prefix, "prefix", false, "put the pod's name before each line")
	f.BoolVar(&c.timestamps, "timestamps", false, "put the time before each line")
	f.BoolVar(&c.json, "json", false, "print one JSON object per line, with time, pod and line")
	f.BoolVar(&c.raw, "raw", false, "print lines unchanged on a terminal, without replacing their escape sequences")
}

func (c *logsCommand) run(ctx context.Context, t *target, name string) error {
	key := runnerapi.Key{Namespace: c.namespace, Name: name}
	err := t.Logs(ctx, key, c.opts, c.print)
	if err != nil {
		return at(t, key.String(), err)
	}
	return nil
}

func (c *logsCommand) print(line runnerapi.LogLine) error {
	if c.json {
		return cli.JSONLine(c.out, line)
	}
	text := line.Line
	if c.prefix {
		text = "[" + line.Pod + "] " + text
	}
	if c.timestamps {
		text = line.Time.UTC().Format(time.RFC3339Nano) + " " + text
	}
	return c.printLog(text, c.raw)
}

// printLog prints a line as the container wrote it, but for what would steer a terminal.
func (a *app) printLog(line string, raw bool) error {
	if a.screen && !raw {
		return cli.Print(a.out, line)
	}
	return cli.Raw(a.out, []byte(line+"\n"))
}
