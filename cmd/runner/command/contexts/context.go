package contexts

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/base"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/contextfile"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/credentials"
)

// NewContext returns the command context.
func NewContext(a *base.CLI) *cobra.Command {
	return cli.Group("context", "Manage contexts: credentials with a default agent and namespace",
		newList(a), commands(a).Use(), newGet(a), newSet(a), commands(a).Delete())
}

// commands are those that the control plane's program has, too.
func commands(a *base.CLI) contextfile.Commands {
	return contextfile.Commands{
		Kind: contextfile.Runner, Named: a.ContextNamed, Say: a.Say,
		Missing: func(err error) error { return &base.ExitError{Err: err, Code: base.ExitNotFound} },
	}
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

func newList(a *base.CLI) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use: "list", Short: "List the contexts",
		Example: "  pipeops-runner context list",
		Args:    cli.ExactArgs(),
		RunE: func(*cobra.Command, []string) error {
			file, err := contextfile.Runner.Load()
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
		Args:    cli.RangeArgs(0, "NAME"), ValidArgsFunction: contextfile.Runner.Complete,
		RunE: func(_ *cobra.Command, args []string) error {
			file, c, err := commands(a).Load(args)
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
