package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

const (
	envCredentials   = "PIPEOPS_RUNNER_CREDENTIALS" //nolint:gosec // a variable's name
	defaultNamespace = "production"
)

// streams are where a command reads and writes. Results go to out; progress,
// hints and errors, which scripts should not see, to err.
type streams struct {
	in       io.Reader
	out, err io.Writer
	terminal bool // err is a terminal
	screen   bool // out is one
}

// app is what all subcommands share.
type app struct {
	streams
	credentials string
	patience    time.Duration
}

// execute runs one command line and returns its exit code.
func execute(ctx context.Context, args []string, s streams) int {
	a := &app{streams: s}
	root := newRoot(a) //nolint:contextcheck // commands get it from ExecuteContext
	root.SetArgs(args)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	ctx, traced, err := a.trace(ctx, root, args)
	if err != nil {
		return a.exit(ctx, root.CommandPath(), usageError{err})
	}
	cmd, err := root.ExecuteContextC(ctx)
	if unknown := cli.UnknownCommand(err); unknown != nil {
		err = usageError{unknown}
	}
	traced(err)
	return a.exit(ctx, cmd.CommandPath(), err)
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "pipeops-runner",
		Short: "Deploy to clusters that agents have connected",
		Long: `pipeops-runner deploys to any cluster whose agent has connected to the control plane, and manages
what runs there.

AGENT is an agent's name or its ID. The credentials file contains everything that you need for
access. Create it with ` + "`pipeops-controlplane runner create NAME -o FILE`" + `, and give it with
--credentials or ` + envCredentials + `.

All times are in UTC.

Exit codes:
` + exitCodesHelp(),
		Example: `  export ` + envCredentials + `=~/runner.json
  pipeops-runner agents
  pipeops-runner deploy shop web --image registry.example.com/shop/web:1.4.2 --port 8080
  pipeops-runner logs shop web -f`,
		Version:       version,
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.NegativeTime(cmd); err != nil {
				return usageError{err}
			}
			return nil
		},
	}
	root.PersistentFlags().StringVar(&a.credentials, "credentials", "", "file with the Runner's credentials (environment: "+envCredentials+")")
	root.PersistentFlags().DurationVar(&a.patience, "patience", client.DefaultPatience, "how long to retry until the control plane and the agent are reachable; 0 for one try")
	_ = root.MarkPersistentFlagFilename("credentials", "json") // fails for an unknown flag only
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return usageError{cli.FlagError(cmd, err)} })
	root.AddCommand(
		newAgents(a), newTimeline(a), newCluster(a), newAudit(a), newApps(a), newDeploy(a), newStatus(a), newScale(a), newRestart(a), newLogs(a), newExec(a), newCopy(a), newPortForward(a), newDelete(a),
		newPause(a), newResume(a), newRollback(a), newRevisions(a), newEvents(a), newOperation(a),
		newSecret(a), newConfig(a), newMetrics(a), newNamespace(a), newNode(a), newClusterEvents(a),
		newJob(a), newPipeline(a), newApply(a), newSet(a), newRelease(a), newSource(a), newBuild(a), newKubeconfig(a), newKubeCredential(a), newCredentials(a),
		cli.NewVersion("pipeops-runner", version, commit),
	)
	root.InitDefaultCompletionCmd("completion")
	return root
}

// credentialsFile returns where the credentials are: the flag, then the environment.
func (a *app) credentialsFile() (string, error) {
	switch path := os.Getenv(envCredentials); {
	case a.credentials != "":
		return a.credentials, nil
	case path != "":
		return path, nil
	}
	return "", &exitError{code: exitUsage, error: fmt.Errorf("no credentials were given: use --credentials FILE or %s; the operator makes the file with `pipeops-controlplane runner create NAME -o FILE`", envCredentials)}
}

// say prints hints for people, which scripts that read the output must not see.
func (a *app) say(format string, args ...any) {
	cli.Say(a.err, format, args...)
}

// exactArgs names the arguments that are missing.
func exactArgs(names ...string) cobra.PositionalArgs {
	return rangeArgs(len(names), names...)
}

// rangeArgs is like exactArgs with only the first few arguments required.
func rangeArgs(least int, names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if n := len(args); n >= least && n <= len(names) {
			return nil
		}
		if n := len(args); n > len(names) && cmd.Flags().Changed("wait") {
			if _, err := time.ParseDuration(args[n-1]); err == nil {
				return usageError{fmt.Errorf("the time to wait is given with an equals sign: --wait=%s", args[n-1])}
			}
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

func namespaceFlag(cmd *cobra.Command, to *string) {
	cmd.Flags().StringVarP(to, "namespace", "n", defaultNamespace, "namespace in the agent's cluster")
}
