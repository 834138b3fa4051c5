package apps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/appfile"
	"github.com/pipeops/pipeops-vm-agent/internal/atomicfile"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/composefile"
)

// ofEach are the flags for an App that apply to each App of a Compose file.
var ofEach = []string{"public", "run-as-root", "pull-secret", "env-secret"}

// compose deploys the services of a Compose file.
func (c *deployCommand) compose(cmd *cobra.Command, args []string, text []byte) error {
	if err := c.forCompose(cmd, args); err != nil {
		return cli.Usage(err)
	}
	apps, err := composefile.Read(cmd.Context(), c.file, text, os.Environ())
	if err != nil {
		return cli.Usage(fmt.Errorf("%s: %w", c.file, err))
	}
	for i := range apps {
		if err := c.complete(&apps[i]); err != nil {
			return err
		}
	}
	for _, app := range apps {
		c.Say("%s: image %s", app.Name, app.Spec.Image)
		for _, note := range app.Notes {
			c.Say("  %s", note)
		}
		c.SayWarnings(app.Spec)
	}
	given := c.Key
	for _, app := range apps {
		if c.Key = ""; given != "" { // a key is that of one command
			c.Key = given + "-" + app.Name
		}
		if err := c.deploy(cmd.Context(), args[0], app.Name, app.Spec); err != nil {
			return err
		}
	}
	return nil
}

// forCompose refuses what is for one App.
func (c *deployCommand) forCompose(cmd *cobra.Command, args []string) error {
	if len(args) > 1 || len(c.spec.Args) > 0 {
		return fmt.Errorf("%s is a Compose file: its services name the Apps, so leave out NAME and what follows --", c.file)
	}
	var wrong []error
	one := &cobra.Command{}
	(&SpecFlags{}).add(one)
	one.Flags().Int64(ifGeneration, 0, "")
	one.Flags().VisitAll(func(f *pflag.Flag) {
		if cmd.Flags().Changed(f.Name) && !slices.Contains(ofEach, f.Name) {
			wrong = append(wrong, fmt.Errorf("--%s is for one App, and %s has several: change the file", f.Name, c.file))
		}
	})
	return errors.Join(wrong...)
}

// complete applies the flags to an App, checks it, and saves it.
func (c *deployCommand) complete(app *composefile.App) error {
	flags := c.spec
	flags.public = flags.public && app.Published
	if s := app.Spec.Security; s != nil && s.RunAsUser != nil && *s.RunAsUser != 0 {
		flags.asRoot = false // it names another user
	}
	if err := flags.Apply(&app.Spec); err != nil {
		return err
	}
	if wrong := app.Spec.Validate(); len(wrong) > 0 {
		return cli.Usage(fmt.Errorf("%s: the App of service %s: %s: %s", c.file, app.Name, wrong[0].Field, wrong[0].Message))
	}
	if c.save == "" {
		return nil
	}
	text, err := appfile.Write(appfile.File{Namespace: c.Namespace, Name: app.Name, Spec: app.Spec})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(c.save, 0o750); err != nil {
		return err
	}
	file := filepath.Join(c.save, app.Name+".yaml")
	if err := atomicfile.Write(file, text); err != nil { // for the user alone: it may hold a password
		return err
	}
	app.Notes = append(app.Notes, "written to "+file)
	return nil
}
