package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// runnerCreate is the subcommand that makes a Runner's credentials.
type runnerCreate struct {
	*app
	file  string
	ttl   time.Duration
	force bool
}

func newRunnerCreate(a *app) *cobra.Command {
	c := &runnerCreate{app: a}
	cmd := &cobra.Command{
		Use:   "create NAME -o FILE",
		Short: "Write one file with all that a Runner needs",
		Long: `Write one file with all that a Runner needs: where the control plane is, the CA, a
certificate with its key, and the broker. Whoever has the file commands every
agent, as far as each cluster's policy lets him: keep it like a password.`,
		Example: `  pipeops-controlplane runner create builder -o builder.json
  pipeops-runner agents --credentials builder.json

  # From a container, which has no file system to keep it in:
  (umask 077; kubectl exec pipeops-controlplane-0 -- /pipeops-controlplane runner create builder -o - >builder.json)`,
		Args: exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.file == "" {
				return usageError{fmt.Errorf("-o is missing: the file to write, for example -o %s.json", args[0])}
			}
			return a.admin(cmd, func(ctx context.Context, admin *controlplane.Admin) error { return c.run(ctx, admin, args[0]) })
		},
	}
	f := cmd.Flags()
	f.StringVarP(&c.file, "output", "o", "", "file to write, or - for standard output")
	f.DurationVar(&c.ttl, "ttl", 365*24*time.Hour, "life of the certificate")
	f.BoolVar(&c.force, "force", false, "replace the file, and the credentials of a Runner that has some")
	_ = cmd.MarkFlagFilename("output", "json")
	return cmd
}

func (c *runnerCreate) run(ctx context.Context, admin *controlplane.Admin, name string) error {
	toStdout := c.file == "-"
	if _, err := os.Lstat(c.file); err == nil && !c.force && !toStdout {
		return fmt.Errorf("%s exists; name another file, or replace it with --force", c.file)
	}
	credentials, err := admin.CreateRunner(ctx, name, c.ttl, c.force)
	if err != nil {
		return err
	}
	where := c.file
	if toStdout {
		where = "standard output"
		err = c.print(credentials)
	} else {
		err = credentials.Write(c.file)
	}
	if err != nil {
		return err
	}
	c.say("credentials of Runner %s are in %s, valid for %s", name, where, cli.Short(c.ttl))
	if credentials.Broker.URL == "" {
		c.say("They hold no broker: start `serve` with --runner-broker-url-file and create them again for announcements.")
	}
	if !toStdout {
		c.say("Next: pipeops-runner agents --credentials %s", c.file)
	}
	return nil
}

// print writes the credentials where a shell redirects them.
func (c *runnerCreate) print(credentials runnerapi.Credentials) error {
	text, err := credentials.Encode()
	if err == nil {
		_, err = c.out.Write(text)
	}
	return err
}
