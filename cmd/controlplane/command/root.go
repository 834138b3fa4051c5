package command

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/controlplane/flags"
	"github.com/pipeops/pipeops-vm-agent/cmd/controlplane/serve"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/datadir"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operators"
)

// Exit codes.
const (
	exitFailure = 1
	exitUsage   = 2
)

type streams struct{ out, err io.Writer }

// app is what all subcommands share.
type app struct {
	streams
	data     flags.Data
	operator flags.Operator
	settings operators.Settings // of what a command does in the data directory itself
}

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
		err = cli.Usage(unknown)
	}
	cli.PrintError(s.err, cmd, err)
	if cli.IsUsage(err) {
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

On the control plane's machine, commands work on the data directory. From anywhere else, give an
operator's credentials: --credentials FILE.

All times are in UTC.`,
		Example: `  pipeops-controlplane serve --data-dir ./data
  pipeops-controlplane token create --data-dir ./data
  pipeops-controlplane agent list --data-dir ./data`,
		Version:       version,
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			err := flags.FromEnvironment(cmd)
			if negative := cli.NegativeTime(cmd); err == nil && negative != nil {
				err = cli.Usage(negative)
			}
			return err
		},
	}
	a.data.Add(root.PersistentFlags())
	a.operator.Add(root.PersistentFlags())
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return cli.Usage(cli.FlagError(cmd, err)) })
	cli.AddGroup(root, "The control plane itself:", serve.ControlPlane(a.program()), newReady(a), newReplica(a), newDatabase(a), newConsole(a))
	cli.AddGroup(root, "Agents:", newAgent(a), newToken(a), newOffer(a))
	cli.AddGroup(root, "Runners, webhooks and dead letters:", newRunner(a), newDeadLetters(a), newWebhook(a))
	cli.AddGroup(root, "Public hosts:", newRoutes(a), newGateway(a))
	cli.AddGroup(root, "Operators and certificates:", newOperator(a), newCA(a), newCertificate(a))
	root.AddCommand(cli.NewExplain("pipeops-controlplane"), newVersion(a), cli.NewMan(version))
	return root
}

// program returns what the commands that serve need.
func (a *app) program() serve.Program {
	return serve.Program{Version: version, Data: &a.data, Err: a.err}
}

// admin carries out a command by the operator API, if there are credentials, or else in the data
// directory. There has to be one.
func (a *app) admin(cmd *cobra.Command, do func(ctx context.Context, admin operatorapi.Target) error) error {
	if file := a.operator.File(); file != "" {
		return a.remotely(cmd.Context(), file, do)
	}
	return a.with(cmd, operators.Open, func(ctx context.Context, admin *operators.Admin) error { return a.locally(ctx, admin, do) })
}

// firstAdmin is like admin for a command that makes sense before the first start of serve: it
// creates the data directory, and reports that.
func (a *app) firstAdmin(cmd *cobra.Command, do func(ctx context.Context, admin operatorapi.Target) error) error {
	if a.operator.File() != "" {
		return a.admin(cmd, do)
	}
	made, has := datadir.Data{Dir: a.data.Dir}.Made(), "a database and a CA"
	return a.with(cmd, operators.Make, func(ctx context.Context, admin *operators.Admin) error {
		if (datadir.Data{Dir: a.data.Dir}).Elsewhere() {
			has = "a CA"
		}
		if !made {
			a.say("%s was no control plane's data directory; it has %s now, for `pipeops-controlplane serve --data-dir %s`", a.data.Dir, has, a.data.Dir)
		}
		return a.locally(ctx, admin, do)
	})
}

// rescue opens the data directory for a command that needs no control plane.
func (a *app) rescue(cmd *cobra.Command, do func(ctx context.Context, admin *operators.Admin) error) error {
	if a.operator.Given() {
		return cli.Usage(errors.New("--credentials: this command works on the data directory alone; run it on the control plane's machine"))
	}
	return a.with(cmd, operators.Open, func(ctx context.Context, admin *operators.Admin) error {
		return errors.Join(do(ctx, admin), admin.Close())
	})
}

// remotely calls the operator API.
func (a *app) remotely(ctx context.Context, file string, do func(ctx context.Context, admin operatorapi.Target) error) error {
	credentials, err := operators.LoadCredentials(file)
	if err != nil {
		return err
	}
	client, err := operatorapi.NewClient(credentials, version)
	if err != nil {
		return err
	}
	client.Renewing(operatorapi.Renewal{
		Save: func(renewed operators.Credentials) error { return renewed.Replace(file) },
		Note: func(err error) { a.say("warning: %v", err) },
	})
	return errors.Join(do(ctx, client), client.Close())
}

// locally works on the data in this process, as serve would.
func (a *app) locally(ctx context.Context, admin *operators.Admin, do func(ctx context.Context, admin operatorapi.Target) error) error {
	log := zerolog.New(zerolog.ConsoleWriter{Out: a.err, NoColor: true}).Level(zerolog.WarnLevel)
	local := operatorapi.NewLocal(admin.With(a.settings), log) //nolint:contextcheck // its audit log is written until Close
	return errors.Join(do(ctx, local), local.Close())
}

func (a *app) with(cmd *cobra.Command, open func(context.Context, datadir.Data, func() time.Time) (*operators.Admin, error),
	do func(ctx context.Context, admin *operators.Admin) error,
) error {
	data, err := a.data.Read()
	if err != nil {
		return err
	}
	admin, err := open(cmd.Context(), data, nil)
	if err != nil {
		return err
	}
	return do(cmd.Context(), admin)
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
