// Package pods has the commands that reach into an App's pods.
package pods

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// execCommand runs a command in a container.
type execCommand struct {
	*cmdutil.CLI
	namespace string
	opts      runnerapi.ExecOptions
}

// NewExec returns the command exec.
func NewExec(a *cmdutil.CLI) *cobra.Command {
	c := &execCommand{CLI: a}
	cmd := &cobra.Command{
		Use:   "exec [AGENT] NAME [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command in a container of an App",
		Long: `Run a command in a container of an App. The command prints its output here, and its exit code is
the exit code of this program. With -it, the command has a terminal, for example for a shell. No
shell interprets the command, unless the command is a shell itself.

The cluster owner's policy must name the command exec-app: nothing else allows it.`,
		Example: "  pipeops-runner exec shop web -- env\n  pipeops-runner exec shop web -it -- sh\n  pipeops-runner exec shop web -i -- psql < dump.sql",
		Args: func(cmd *cobra.Command, args []string) error {
			if before, command := cmdutil.SplitArgs(cmd, args); len(before) != 2 || len(command) == 0 {
				return cli.Usage(errors.New("exec takes AGENT NAME, then -- and the command to run"))
			}
			return nil
		},
		ValidArgsFunction: a.CompleteApp,
		RunE: func(cmd *cobra.Command, args []string) error {
			c.opts.Command = args[2:]
			return a.On(cmd.Context(), args[0], func(ctx context.Context, t *cmdutil.Target) error { return c.run(ctx, t, args[1]) })
		},
	}
	f := cmd.Flags()
	cmdutil.NamespaceFlag(cmd, &c.namespace)
	f.BoolVarP(&c.opts.Stdin, "stdin", "i", false, "pass standard input to the command")
	f.BoolVarP(&c.opts.TTY, "tty", "t", false, "give the command a terminal")
	podFlags(cmd, &c.opts.Pod)
	f.StringVarP(&c.opts.Container, "container", "c", "", "container (default: the App's own)")
	return cmd
}

func podFlags(cmd *cobra.Command, pod *string) {
	cmd.Flags().StringVar(pod, "pod", "", "pod (default: the newest that is ready)")
}

func (c *execCommand) run(ctx context.Context, t *cmdutil.Target, name string) error {
	key := runnerapi.Key{Namespace: c.namespace, Name: name}
	s := runnerapi.ExecStreams{Stdin: c.In, Stdout: c.Out, Stderr: c.Err, Recorded: recorded(c.CLI, c.opts.TTY)}
	if c.opts.TTY {
		end, err := c.terminal(&s)
		if err != nil {
			return err
		}
		defer end()
	}
	code, err := t.Apps().Exec(ctx, key, c.opts, s)
	switch {
	case err != nil:
		return cmdutil.At(t, key.String(), err)
	case code != 0:
		return &cmdutil.ExitError{Err: fmt.Errorf("the command ended with exit code %d", code), Code: code, Told: true}
	}
	return nil
}

// recorded returns a function that says once that a session is recorded. A raw terminal needs the
// carriage return.
func recorded(a *cmdutil.CLI, raw bool) func(string) {
	return func(id string) {
		cli.Say(a.Err, "The output of this session is recorded for the owner of the cluster (recording %s).", id)
		if raw {
			_ = cli.Raw(a.Err, []byte("\r"))
		}
	}
}

// terminal passes all keys to the command until end is called.
func (c *execCommand) terminal(s *runnerapi.ExecStreams) (end func(), err error) {
	keyboard, ok := c.In.(*os.File)
	if !ok || !term.IsTerminal(int(keyboard.Fd())) {
		return nil, cli.Usage(errors.New("-t: standard input is not a terminal; leave -t out, or use -i alone"))
	}
	s.Stderr = nil
	sizes, stop := terminalSizes(keyboard)
	s.Resize = sizes
	if !c.opts.Stdin {
		return stop, nil
	}
	before, err := term.MakeRaw(int(keyboard.Fd()))
	if err != nil {
		stop()
		return nil, fmt.Errorf("-t: the terminal cannot be switched to raw: %w", err)
	}
	return func() {
		stop()
		_ = term.Restore(int(keyboard.Fd()), before)
	}, nil
}

// offerTerminalSize sends the current size, if it is known.
func offerTerminalSize(of *os.File, to chan<- runnerapi.TerminalSize) {
	width, height, err := term.GetSize(int(of.Fd()))
	if err != nil || width <= 0 || height <= 0 || width > 1<<15 || height > 1<<15 {
		return
	}
	select {
	case to <- runnerapi.TerminalSize{Width: uint16(width), Height: uint16(height)}:
	default: // the last size is still unread: skip this one
	}
}
