package apps

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// LogsCommand prints an App's log.
type LogsCommand struct {
	*cmdutil.CLI
	Namespace  string
	Opts       runnerapi.LogOptions
	prefix     bool
	timestamps bool
	out        cli.Output
	raw        bool
}

// NewLogs returns the command logs.
func NewLogs(a *cmdutil.CLI) *cobra.Command {
	c := &LogsCommand{CLI: a}
	cmd := &cobra.Command{
		Use:   "logs [AGENT] NAME",
		Short: "Print or follow an App's log",
		Long: `Print the log of all pods of an App, interleaved by time.

With -f, the command continues until interrupted, also across restarts of the App and of the
agent.

With --since alone, the log also has lines of earlier runs and of pods that are gone. It has them
for up to 30 days, if the cluster has Loki: ` + "`pipeops-agent component install loki`" + `. With
--tail, -f or --previous, it has the lines of the pods that there are.`,
		Example: `  pipeops-runner logs shop web --tail 100
  pipeops-runner logs shop web -f --since 10m
  pipeops-runner logs shop web --since 24h --grep "GET /healthz"
  pipeops-runner logs shop web --previous`,
		Args:              cli.ExactArgs("AGENT", "NAME"),
		ValidArgsFunction: a.CompleteApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.Opts.Follow && c.Opts.Previous {
				return cli.Usage(errors.New("-f and --previous do not go together: a run that is over cannot be followed"))
			}
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error { return c.run(ctx, t, args[1]) })
		},
	}
	c.Flags(cmd, "print new lines until interrupted")
	cmd.Flags().BoolVar(&c.Opts.Previous, "previous", false, "print the log of the run before the last restart")
	return cmd
}

// Flags adds the flags of commands that read a log.
func (c *LogsCommand) Flags(cmd *cobra.Command, follow string) {
	c.lineFlags(cmd, follow)
	cmd.Flags().StringVarP(&c.Opts.Container, "container", "c", "", "container (default: the App's own)")
}

// lineFlags adds the flags that every log has.
func (c *LogsCommand) lineFlags(cmd *cobra.Command, follow string) {
	f := cmd.Flags()
	cmdutil.NamespaceFlag(cmd, &c.Namespace)
	f.BoolVarP(&c.Opts.Follow, "follow", "f", false, follow)
	f.IntVar(&c.Opts.Tail, "tail", -1, "number of last lines of each pod; -1 for all")
	cli.DurationVar(f, &c.Opts.Since, "since", 0, "print only lines newer than this, e.g. 10m")
	f.StringVar(&c.Opts.Grep, "grep", "", "print only lines that contain this text; no regular expression")
	f.BoolVar(&c.prefix, "prefix", false, "put the pod's name before each line")
	f.BoolVar(&c.timestamps, "timestamps", false, "put the time before each line")
	c.out.Add(cmd)
	f.Lookup("output").Usage = "json for one object per line, with time, pod and line; yaml or " + cli.JSONPath + "TEMPLATE likewise"
	f.BoolVar(&c.raw, "raw", false, "print lines unchanged on a terminal, without replacing their escape sequences")
}

func (c *LogsCommand) run(ctx context.Context, t *cmdutil.Target, name string) error {
	key := runnerapi.Key{Namespace: c.Namespace, Name: name}
	err := t.Apps().Logs(ctx, key, c.Opts, c.Print)
	if err != nil {
		return cmdutil.At(t, key.String(), err)
	}
	return nil
}

// Print prints a line as the flags say.
func (c *LogsCommand) Print(line runnerapi.LogLine) error {
	if !c.out.Table() {
		return c.out.WriteLine(c.Out, line, "")
	}
	text := line.Line
	if c.prefix {
		text = "[" + line.Pod + "] " + text
	}
	if c.timestamps {
		text = line.Time.UTC().Format(time.RFC3339Nano) + " " + text
	}
	return c.PrintLog(text, c.raw)
}
