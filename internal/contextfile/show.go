package contextfile

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

// shown is a context as the commands show it. Error says why its credentials cannot be read.
type shown struct {
	Context
	Current      bool   `json:"current"`
	Runner       string `json:"runner,omitempty"`
	Operator     string `json:"operator,omitempty"`
	ControlPlane string `json:"controlPlane,omitempty"`
	Error        string `json:"error,omitempty"`
}

// holder returns the name in the credentials.
func (s shown) holder() string { return s.Runner + s.Operator }

func (c Commands) show(file *File, of Context) shown {
	s := shown{Context: of, Current: of.Name == file.CurrentContext}
	name, controlPlane, err := c.Holder(of.Credentials)
	if err != nil {
		s.Error = err.Error()
	}
	if s.ControlPlane = controlPlane; c.Defaults {
		s.Runner = name
	} else {
		s.Operator = name
	}
	return s
}

// List returns the command context list.
func (c Commands) List() *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use: "list", Short: "List the contexts",
		Example: "  " + c.Program + " context list",
		Args:    cli.ExactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := c.Kind.Load()
			if err != nil {
				return cli.Usage(err)
			}
			if len(file.Contexts) == 0 && out.Table() {
				c.Say("there are none; create one with `%s login FILE`", c.Program)
			}
			all := make([]shown, len(file.Contexts))
			for i, of := range file.Contexts {
				all[i] = c.show(file, of)
			}
			var list any = all
			if c.Defaults { // as all lists of that program
				list = map[string]any{"items": all}
			}
			return out.Write(cmd.OutOrStdout(), list, func(w io.Writer) { c.table(w, all) })
		},
	}
	out.AddList(cmd)
	return cmd
}

func (c Commands) table(w io.Writer, all []shown) {
	if c.Defaults {
		cli.Row(w, "CURRENT", "NAME", "RUNNER", "CONTROL PLANE", "AGENT", "NAMESPACE")
	} else {
		cli.Row(w, "CURRENT", "NAME", "OPERATOR", "CONTROL PLANE", "CREDENTIALS")
	}
	for _, s := range all {
		cells := []any{map[bool]string{true: "*"}[s.Current], s.Name, s.holder(), s.ControlPlane}
		if c.Defaults {
			cells = append(cells, s.Agent, s.Namespace)
		} else {
			cells = append(cells, s.Credentials)
		}
		cli.Row(w, cells...)
	}
}

// Get returns the command context get.
func (c Commands) Get() *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use: "get [NAME]", Short: "Show a context: by default, the current one",
		Example: fmt.Sprintf("  %[1]s context get\n  %[1]s context get staging -o json", c.Program),
		Args:    cli.RangeArgs(0, "NAME"), ValidArgsFunction: c.Complete,
		RunE: func(cmd *cobra.Command, args []string) error {
			file, found, err := c.Load(args)
			if err != nil {
				return err
			}
			s := c.show(file, *found)
			return out.Write(cmd.OutOrStdout(), s, func(w io.Writer) { c.rows(w, s) })
		},
	}
	out.Add(cmd)
	return cmd
}

func (c Commands) rows(w io.Writer, s shown) {
	cli.Row(w, "Name:", s.Name)
	cli.Row(w, "Current:", s.Current)
	if c.Defaults {
		cli.Row(w, "Runner:", s.Runner)
	} else {
		cli.Row(w, "Operator:", s.Operator)
	}
	cli.Row(w, "Control plane:", s.ControlPlane)
	if c.Defaults {
		cli.Row(w, "Agent:", s.Agent)
		cli.Row(w, "Namespace:", s.Namespace)
	}
	cli.Row(w, "Credentials:", s.Credentials)
	if s.Error != "" {
		cli.Row(w, "Error:", s.Error)
	}
}
