package command

import (
	"errors"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/contextfile"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
)

func newContext(a *app) *cobra.Command {
	shared := contextfile.Commands{
		Kind: contextfile.Operator, Named: a.operator.Context, Say: a.say, Missing: func(err error) error { return err },
		Holder: func(path string) (name, controlPlane string, err error) {
			c, err := administration.LoadCredentials(path)
			return c.Operator, c.ControlPlane, err
		},
	}
	return cli.Group("context", "Manage contexts: operators' credentials, by name",
		shared.List(), shared.Use(), shared.Get(), newContextSet(a), shared.Delete())
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
	creds, err := administration.LoadCredentials(given)
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
