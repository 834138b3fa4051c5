package command

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
)

// operatorCreate is the subcommand that makes an operator's credentials.
type operatorCreate struct {
	*app
	file, role string
	ttl        time.Duration
	force      bool
}

func newOperatorCreate(a *app) *cobra.Command {
	c := &operatorCreate{app: a}
	cmd := &cobra.Command{
		Use:   "create NAME -o FILE",
		Short: "Create an operator and write the credentials to a file",
		Long: `Create an operator. One file has everything that the operator needs: the control plane's address,
its CA, and a certificate with its key. Keep the file like a password.

--role says what the operator may do:
  viewer     read
  operator   also change the fleet: tokens, agents, Runners, webhooks, hosts, dead letters
  admin      also the CA, the operators and the releases`,
		Example: `  pipeops-controlplane operator create alice --role operator -o alice.json
  pipeops-controlplane login alice.json   # anywhere else`,
		Args: cli.ExactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.file == "" {
				return cli.Usage(fmt.Errorf("-o is missing: the file to write, for example -o %s.json", args[0]))
			}
			if !slices.Contains(administration.Roles, c.role) {
				return cli.Usage(fmt.Errorf("--role: unknown role %q; use %s", c.role, strings.Join(administration.Roles, ", ")))
			}
			if err := fileIsFree(c.file, c.force); err != nil {
				return err
			}
			return a.admin(cmd, func(ctx context.Context, admin operatorapi.Target) error { return c.run(ctx, admin, args[0]) })
		},
	}
	f := cmd.Flags()
	f.StringVarP(&c.file, "output", "o", "", "file to write, or - for standard output")
	f.StringVar(&c.role, "role", administration.RoleViewer, "what the operator may do: "+strings.Join(administration.Roles, ", "))
	cli.DurationVar(f, &c.ttl, "ttl", administration.DefaultOperatorTTL, "lifetime of the certificate, at most 1y")
	f.BoolVar(&c.force, "force", false, "replace the file, and the credentials and role of an existing operator")
	_ = cmd.MarkFlagFilename("output", "json")
	return cmd
}

func (c *operatorCreate) run(ctx context.Context, admin operatorapi.Target, name string) error {
	made, err := operatorapi.CreateOperator.Do(ctx, admin, operatorapi.CreateOperatorInput{Body: operatorapi.CreateOperatorBody{
		Name: name, Role: c.role, TTL: operatorapi.Duration(c.ttl), Replace: c.force,
	}})
	if err != nil {
		return err
	}
	if c.file == stdoutFile {
		text, err := made.Encode()
		if err != nil {
			return err
		}
		return cli.Raw(c.out, text)
	}
	if err := made.Write(c.file); err != nil {
		return err
	}
	c.say("credentials of operator %s with the role %s are in %s, for %s", name, c.role, c.file, cli.Short(c.ttl))
	return nil
}
