package command

import (
	"errors"
	"io"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/contextfile"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
)

func newContext(a *app) *cobra.Command {
	shared := contextfile.Commands{
		Kind: contextfile.Operator, Named: a.operator.Context, Say: a.say, Missing: func(err error) error { return err },
	}
	return cli.Group("context", "Manage contexts: operators' credentials, by name",
		newContextList(a), shared.Use(), newContextGet(a, shared), newContextSet(a), shared.Delete())
}

// contextView is a context as it is shown. Error says why its credentials cannot be read.
type contextView struct {
	contextfile.Context
	Current      bool   `json:"current"`
	Operator     string `json:"operator,omitempty"`
	ControlPlane string `json:"controlPlane,omitempty"`
	Error        string `json:"error,omitempty"`
}

func viewContext(file *contextfile.File, c contextfile.Context) contextView {
	v := contextView{Context: c, Current: c.Name == file.CurrentContext}
	creds, err := operators.LoadCredentials(c.Credentials)
	if err != nil {
		v.Error = err.Error()
	}
	v.Operator, v.ControlPlane = creds.Operator, creds.ControlPlane
	return v
}

func newContextList(a *app) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use: "list", Short: "List the contexts",
		Example: "  pipeops-controlplane context list",
		Args:    cli.ExactArgs(),
		RunE: func(*cobra.Command, []string) error {
			file, err := contextfile.Operator.Load()
			if err != nil {
				return cli.Usage(err)
			}
			if a.none(out, len(file.Contexts), "there are none; create one with `pipeops-controlplane login FILE`") {
				return nil
			}
			views := make([]contextView, len(file.Contexts))
			for i, c := range file.Contexts {
				views[i] = viewContext(file, c)
			}
			return out.Write(a.out, listOf(views), func(w io.Writer) { contextTable(w, views) })
		},
	}
	out.AddList(cmd)
	return cmd
}

func contextTable(w io.Writer, views []contextView) {
	cli.Row(w, "CURRENT", "NAME", "OPERATOR", "CONTROL PLANE", "CREDENTIALS")
	for _, v := range views {
		mark := ""
		if v.Current {
			mark = "*"
		}
		cli.Row(w, mark, v.Name, v.Operator, v.ControlPlane, v.Credentials)
	}
}

func newContextGet(a *app, shared contextfile.Commands) *cobra.Command {
	var out cli.Output
	cmd := &cobra.Command{
		Use: "get [NAME]", Short: "Show a context: by default, the current one",
		Example: "  pipeops-controlplane context get\n  pipeops-controlplane context get staging -o json",
		Args:    cli.RangeArgs(0, "NAME"), ValidArgsFunction: shared.Complete,
		RunE: func(_ *cobra.Command, args []string) error {
			file, c, err := shared.Load(args)
			if err != nil {
				return err
			}
			v := viewContext(file, *c)
			return out.Write(a.out, v, func(w io.Writer) { showContext(w, v) })
		},
	}
	out.Add(cmd)
	return cmd
}

func showContext(w io.Writer, v contextView) {
	cli.Row(w, "Name:", v.Name)
	cli.Row(w, "Current:", v.Current)
	cli.Row(w, "Operator:", v.Operator)
	cli.Row(w, "Control plane:", v.ControlPlane)
	cli.Row(w, "Credentials:", v.Credentials)
	if v.Error != "" {
		cli.Row(w, "Error:", v.Error)
	}
}

func newContextSet(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "set NAME --credentials FILE", Short: "Have a context use a credentials file where it is",
		Long: `Have a context use a credentials file where it is, such as on an encrypted volume. The context is
created if there is none of that name. Commands renew the certificate in that file, and
"context delete" leaves the file. In contrast, "login" stores a copy.`,
		Example: "  pipeops-controlplane context set staging --credentials /media/keys/alice.json",
		Args:    cli.ExactArgs("NAME"), ValidArgsFunction: contextfile.Operator.Complete,
		RunE: func(_ *cobra.Command, args []string) error { return a.setContext(args[0]) },
	}
}

func (a *app) setContext(name string) error {
	given := a.operator.CredentialsFlag()
	if given == "" {
		return cli.Usage(errors.New("nothing to set: give --credentials FILE"))
	}
	creds, err := operators.LoadCredentials(given)
	if err != nil {
		return cli.Usage(err)
	}
	path, err := filepath.Abs(given)
	if err != nil {
		return err
	}
	file, err := contextfile.Operator.Load()
	if err != nil {
		return cli.Usage(err)
	}
	c, err := file.Put(name)
	if err != nil {
		return cli.Usage(err)
	}
	c.Credentials = path
	if err := file.Save(); err != nil {
		return err
	}
	a.say("context %s: operator %s at %s, with %s", name, creds.Operator, creds.ControlPlane, path)
	return nil
}
