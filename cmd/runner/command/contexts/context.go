package contexts

import (
	"cmp"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/base"
	"github.com/pipeops/pipeops-vm-agent/cmd/runner/contextfile"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// NewContext returns the command context.
func NewContext(a *base.CLI) *cobra.Command {
	return cli.Group("context", "Manage contexts: credentials with a default agent and namespace",
		newList(a), newUse(a), newGet(a), newSet(a), newDelete(a))
}

// view is a context as it is shown. Error says why its credentials cannot be read.
type view struct {
	contextfile.Context
	Current      bool   `json:"current"`
	Runner       string `json:"runner,omitempty"`
	ControlPlane string `json:"controlPlane,omitempty"`
	Error        string `json:"error,omitempty"`
}

func viewOf(file *contextfile.File, c contextfile.Context) view {
	v := view{Context: c, Current: c.Name == file.CurrentContext}
	creds, err := credentials.Load(c.Credentials)
	if err != nil {
		v.Error = err.Error()
	}
	v.Runner, v.ControlPlane = creds.Runner, creds.ControlPlane
	return v
}

// load returns the file and the context in it that the arguments name: for none, the one that
// applies.
func load(a *base.CLI, args []string) (*contextfile.File, *contextfile.Context, error) {
	file, err := contextfile.Load()
	if err != nil {
		return nil, nil, cli.Usage(err)
	}
	name := cmp.Or(append(args, a.ContextNamed(), file.CurrentContext)...)
	if name == "" {
		return nil, nil, cli.Usage(errors.New("no context is in use: give NAME, or choose one with `pipeops-runner context use NAME`"))
	}
	c, err := file.Get(name)
	if err != nil {
		return nil, nil, &base.ExitError{Err: err, Code: base.ExitNotFound}
	}
	return file, c, nil
}

// Complete offers the names of the contexts for the first argument.
func Complete(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	file, err := contextfile.Load()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := make([]string, len(file.Contexts))
	for i, c := range file.Contexts {
		names[i] = c.Name
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func newList(a *base.CLI) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use: "list", Short: "List the contexts",
		Example: "  pipeops-runner context list",
		Args:    cli.ExactArgs(),
		RunE: func(*cobra.Command, []string) error {
			file, err := contextfile.Load()
			if err != nil {
				return cli.Usage(err)
			}
			if len(file.Contexts) == 0 && out.Table() {
				a.Say("there are none; create one with `pipeops-runner login FILE`")
			}
			views := make([]view, len(file.Contexts))
			for i, c := range file.Contexts {
				views[i] = viewOf(file, c)
			}
			return out.Write(a.Out, map[string]any{"items": views}, func(w io.Writer) { table(w, views) })
		},
	}
	out.AddList(cmd)
	return cmd
}

func table(w io.Writer, views []view) {
	cli.Row(w, "CURRENT", "NAME", "RUNNER", "CONTROL PLANE", "AGENT", "NAMESPACE")
	for _, v := range views {
		mark := ""
		if v.Current {
			mark = "*"
		}
		cli.Row(w, mark, v.Name, v.Runner, v.ControlPlane, v.Agent, v.Namespace)
	}
}

func newGet(a *base.CLI) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use: "get [NAME]", Short: "Show a context: by default, the current one",
		Example: "  pipeops-runner context get\n  pipeops-runner context get staging -o json",
		Args:    cli.RangeArgs(0, "NAME"), ValidArgsFunction: Complete,
		RunE: func(_ *cobra.Command, args []string) error {
			file, c, err := load(a, args)
			if err != nil {
				return err
			}
			v := viewOf(file, *c)
			return out.Write(a.Out, v, func(w io.Writer) { show(w, v) })
		},
	}
	out.Add(cmd)
	return cmd
}

func show(w io.Writer, v view) {
	cli.Row(w, "Name:", v.Name)
	cli.Row(w, "Current:", v.Current)
	cli.Row(w, "Runner:", v.Runner)
	cli.Row(w, "Control plane:", v.ControlPlane)
	cli.Row(w, "Agent:", v.Agent)
	cli.Row(w, "Namespace:", v.Namespace)
	cli.Row(w, "Credentials:", v.Credentials)
	if v.Error != "" {
		cli.Row(w, "Error:", v.Error)
	}
}
