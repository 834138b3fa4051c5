package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane"
)

const (
	envPrefix      = "PIPEOPS_"
	defaultDataDir = "/var/lib/pipeops-controlplane"

	exitFailure = 1
	exitUsage   = 2
)

type streams struct{ out, err io.Writer }

// app is what all subcommands share.
type app struct {
	streams
	dataDir  string
	database databaseFlags
}

// usageError is a mistake on the command line.
type usageError struct{ error }

func execute(ctx context.Context, args []string, s streams) int {
	root := newRoot(&app{streams: s}) //nolint:contextcheck // cobra hands it to the commands
	root.SetArgs(args)
	root.SetOut(s.out)
	root.SetErr(s.err)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if unknown := cli.UnknownCommand(err); unknown != nil {
		err = usageError{unknown}
	}
	cli.Say(s.err, "Error: %v", err)
	var usage usageError
	if errors.As(err, &usage) {
		cli.Say(s.err, "%s", cli.SeeHelp(cmd.CommandPath()))
		return exitUsage
	}
	return exitFailure
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "pipeops-controlplane",
		Short: "Run and manage the PipeOps control plane",
		Long: `pipeops-controlplane serves agents and Runners. It registers agents by token, terminates their
tunnels, routes Runners to them, and announces them over RabbitMQ.

You can also set --data-dir, --database and every flag of serve in the environment. For example,
--data-dir is PIPEOPS_DATA_DIR and --api-listen is PIPEOPS_API_LISTEN.

All times are in UTC.`,
		Example: `  pipeops-controlplane serve --data-dir ./data
  pipeops-controlplane token create --data-dir ./data
  pipeops-controlplane agents --data-dir ./data`,
		Version:       version,
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			err := fromEnvironment(cmd)
			if negative := cli.NegativeTime(cmd); err == nil && negative != nil {
				err = usageError{negative}
			}
			return err
		},
	}
	root.PersistentFlags().StringVar(&a.dataDir, "data-dir", defaultDataDir, "directory of the CA and the database, unless they are in PostgreSQL")
	a.database.add(root.PersistentFlags())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{cli.FlagError(cmd, err)} })
	root.AddCommand(newServe(a), newReady(a), newToken(a), newRunner(a), newAgents(a), newAgent(a), newRoutes(a), newGateway(a), newWebhook(a), newRelease(a), newDeadLetters(a), newCA(a), newDatabase(a), cli.NewVersion("pipeops-controlplane", version, commit))
	return root
}

// fromEnvironment gives the flags that were not given their values from the
// environment: those of serve, which a container sets, and the data directory.
// All that cannot be read is reported at once.
func fromEnvironment(cmd *cobra.Command) error {
	var errs []error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		name := envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value := os.Getenv(name)
		inherited := cmd.InheritedFlags().Lookup(f.Name) != nil
		if f.Changed || value == "" || f.Name == "help" || f.Annotations[notFromEnvironment] != nil || cmd.Name() != "serve" && !inherited {
			return
		}
		if err := f.Value.Set(value); err != nil {
			// Not the value: it may be a secret in the wrong place.
			errs = append(errs, fmt.Errorf("%s: is not a %s", name, f.Value.Type()))
		}
	})
	if len(errs) > 0 {
		return usageError{errors.Join(errs...)}
	}
	return nil
}

const notFromEnvironment = "not-from-environment"

// data returns what the flags name.
func (a *app) data() (controlplane.Data, error) {
	database, err := a.database.read()
	if err != nil {
		return controlplane.Data{}, usageError{err}
	}
	key, err := a.database.readCAKey()
	if err != nil {
		return controlplane.Data{}, usageError{err}
	}
	if key.Given() && !database.Given() {
		return controlplane.Data{}, usageError{errors.New("--ca-key-file: is for control planes that share a database; give --database as well, or leave it out")}
	}
	return controlplane.Data{Dir: a.dataDir, Database: database, CAKey: key}, nil
}

// admin opens the data directory for one command. There has to be one.
func (a *app) admin(cmd *cobra.Command, do func(ctx context.Context, admin *controlplane.Admin) error) error {
	return a.with(cmd, controlplane.OpenAdmin, do)
}

// firstAdmin is like admin for a command that makes sense before the first start of serve: it
// creates the data directory, and reports that.
func (a *app) firstAdmin(cmd *cobra.Command, do func(ctx context.Context, admin *controlplane.Admin) error) error {
	made, has := controlplane.Data{Dir: a.dataDir}.Made(), "a database and a CA"
	return a.with(cmd, controlplane.MakeAdmin, func(ctx context.Context, admin *controlplane.Admin) error {
		if (controlplane.Data{Dir: a.dataDir}).Elsewhere() {
			has = "a CA"
		}
		if !made {
			a.say("%s was no control plane's data directory; it has %s now, for `pipeops-controlplane serve --data-dir %s`", a.dataDir, has, a.dataDir)
		}
		return do(ctx, admin)
	})
}

func (a *app) with(cmd *cobra.Command, open func(context.Context, controlplane.Data, func() time.Time) (*controlplane.Admin, error),
	do func(ctx context.Context, admin *controlplane.Admin) error,
) error {
	data, err := a.data()
	if err != nil {
		return err
	}
	admin, err := open(cmd.Context(), data, nil)
	if err != nil {
		return err
	}
	return errors.Join(do(cmd.Context(), admin), admin.Close())
}

// say prints hints for people, which scripts that read the output must not see.
func (a *app) say(format string, args ...any) {
	cli.Say(a.err, format, args...)
}

// none tells a person that the list is empty, and what to do about it.
func (a *app) none(out cli.Output, n int, hint string) bool {
	if n > 0 || !out.Table() {
		return false
	}
	a.say("%s", hint)
	return true
}

// exactArgs names the argument that is missing.
func exactArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		want := strings.Join(names, " ")
		if want == "" {
			want = "no arguments"
		}
		return usageError{fmt.Errorf("%s takes %s, not %d arguments", cmd.CommandPath(), want, len(args))}
	}
}

// group returns a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs, RunE: func(cmd *cobra.Command, args []string) error {
		return usageError{cli.NoSubcommand(cmd, args)}
	}}
	cmd.AddCommand(commands...)
	return cmd
}
