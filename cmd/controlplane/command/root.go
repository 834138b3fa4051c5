package command

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/controlplane/flags"
	"github.com/pipeops/pipeops-vm-agent/cmd/controlplane/serve"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/contextfile"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
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
	settings administration.Settings // of what a command does in the data directory itself
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
	if unknown := cli.UnknownCommand(root, err); unknown != nil {
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

Commands call the operator API. On the control plane's machine, they reach the control plane that
serves the data directory, as root or as its user. From anywhere else, they need an operator's
credentials: store them with "login" once, or give --credentials FILE.

With --offline, a command works on the data directory itself, for when no control plane serves.

All times are in UTC.`,
		Example: `  pipeops-controlplane serve --data-dir ./data
  pipeops-controlplane token create --data-dir ./data
  pipeops-controlplane agent list --data-dir ./data`,
		Version: version,
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
	_ = root.RegisterFlagCompletionFunc("context", contextfile.Operator.Complete)
	cli.Root(root)
	cli.AddGroup(root, "The control plane itself:", serve.ControlPlane(a.program()), newReady(a), newReplica(a), newDatabase(a), newConsole(a))
	cli.AddGroup(root, "Agents:", newAgent(a), newToken(a), newOffer(a))
	cli.AddGroup(root, "Runners, webhooks and dead letters:", newRunner(a), newDeadLetters(a), newWebhook(a))
	cli.AddGroup(root, "Public hosts:", newRoutes(a), newGateway(a))
	cli.AddGroup(root, "Operators and certificates:", newLogin(a), newContext(a), newOperator(a), newCA(a), newCertificate(a))
	root.AddCommand(cli.NewExplain("pipeops-controlplane"), newVersion(a), cli.NewMan(version))
	return root
}

// program returns what the commands that serve need.
func (a *app) program() serve.Program {
	return serve.Program{Version: version, Data: &a.data, Err: a.err}
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
