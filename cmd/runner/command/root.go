package command

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/access"
	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/agents"
	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/apps"
	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cluster"
	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/config"
	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/contexts"
	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/jobs"
	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/manifests"
	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/pods"
	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/releases"
	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/sources"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/contextfile"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// execute runs one command line and returns its exit code.
func execute(ctx context.Context, args []string, s cmdutil.Streams) int {
	a := &cmdutil.CLI{Streams: s, Version: version}
	root := newRoot(a) //nolint:contextcheck // commands get it from ExecuteContext
	root.SetArgs(args)
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	ctx, traced, err := trace(ctx, s.Err, root, args)
	if err != nil {
		return a.Exit(ctx, root.CommandPath(), cli.Usage(err))
	}
	cmd, err := root.ExecuteContextC(ctx)
	if unknown := cli.UnknownCommand(root, err); unknown != nil {
		err = cli.Usage(unknown)
	}
	traced(err)
	return a.Exit(ctx, cmd.CommandPath(), err)
}

func newRoot(a *cmdutil.CLI) *cobra.Command {
	root := &cobra.Command{
		Use:   "pipeops-runner",
		Short: "Deploy to clusters that agents have connected",
		Long: `pipeops-runner deploys to any cluster whose agent has connected to the control plane, and manages
what runs there.

AGENT is an agent's name or its ID. If you leave it out, ` + cmdutil.EnvAgent + ` or the context
names the agent.

The credentials file contains everything that you need for access. An operator creates it with
` + "`pipeops-controlplane runner create NAME -o FILE`" + `. Store it in a context with
` + "`pipeops-runner login`" + `, or give it with --credentials or ` + cmdutil.EnvCredentials + `. A CI job
needs no file: ` + "`pipeops-runner login --help`" + `.

All times are in UTC.

Exit codes:
` + cmdutil.ExitCodesHelp(),
		Example: `  pipeops-runner login ~/runner.json
  pipeops-runner agents
  pipeops-runner deploy shop web --image registry.example.com/shop/web:1.4.2 --port 8080
  pipeops-runner logs shop web -f`,
		Version: version,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.NegativeTime(cmd); err != nil {
				return cli.Usage(err)
			}
			return a.UseContext(cmd)
		},
	}
	root.PersistentFlags().StringVar(&a.Credentials, "credentials", "", "file with the Runner's credentials (environment: "+cmdutil.EnvCredentials+")")
	root.PersistentFlags().StringVar(&a.Context, "context", "", "context with credentials and defaults (environment: "+cmdutil.EnvContext+"; default: the current one)")
	cli.DurationVar(root.PersistentFlags(), &a.Patience, "patience", client.DefaultPatience, "how long to retry until the control plane and the agent are reachable; 0 for one try")
	root.PersistentFlags().CountVarP(&a.Verbose, "verbose", "v", "print each HTTP call to standard error; -v=2 also prints its headers, without secrets")
	_ = root.MarkPersistentFlagFilename("credentials", "json") // fails for an unknown flag only
	_ = root.RegisterFlagCompletionFunc("context", contextfile.Runner.Complete)
	cli.Root(root)
	addGroups(a, root)
	cli.Meant(root, meant)
	root.AddCommand(cli.NewExplain(root.Name()), agents.NewVersion(a, cli.VersionOf("pipeops-runner", version, commit)), cli.NewMan(version))
	root.InitDefaultCompletionCmd("completion")
	optionalAgents(a, root)
	return root
}

// meant are words of other tools.
var meant = map[string][]string{
	"agents":      {"agent", "clusters"},
	"applyset":    {"set", "sets", "manifests"},
	"apps":        {"app", "get", "list", "ls", "ps"},
	"configmap":   {"cm", "config", "configmaps"},
	"delete":      {"destroy", "down", "remove", "rm", "uninstall"},
	"deploy":      {"create", "install", "run", "up", "update", "upgrade"},
	"exec":        {"attach", "sh", "shell", "ssh"},
	"helm":        {"chart", "release", "releases"},
	"helm delete": {"uninstall"},
	"helm deploy": {"apply", "install", "upgrade"},
	"helm list":   {"ls"},
	"helm status": {"get", "show"},
	"job":         {"cronjob", "jobs"},
	"logs":        {"log", "tail"},
	"namespace":   {"namespaces", "ns"},
	"node":        {"nodes"},
	"secret":      {"env", "secrets"},
	"source":      {"flux", "git", "repo", "sources"},
	"status":      {"describe", "info", "inspect", "show"},
}

// addGroups adds the commands in the groups of the help.
func addGroups(a *cmdutil.CLI, root *cobra.Command) {
	cli.AddGroup(root, "Apps:",
		apps.NewAccessLog(a), apps.NewApps(a), apps.NewDelete(a), apps.NewDeploy(a), apps.NewHost(a), apps.NewLogs(a), apps.NewMetrics(a), apps.NewOperation(a),
		apps.NewPause(a), apps.NewRestart(a), apps.NewResume(a), apps.NewRevisions(a), apps.NewRollback(a), apps.NewScale(a),
		apps.NewStatus(a), apps.NewTraffic(a), pods.NewCopy(a), pods.NewExec(a), pods.NewPortForward(a))
	cli.AddGroup(root, "Jobs, manifests, charts and Git:",
		jobs.NewJob(a), jobs.NewPipeline(a), manifests.NewApply(a), manifests.NewSet(a), releases.NewRelease(a),
		sources.NewSource(a), sources.NewBuild(a))
	cli.AddGroup(root, "Configuration:", config.NewConfig(a), config.NewSecret(a))
	cli.AddGroup(root, "Agents and their clusters:",
		agents.NewAgents(a), agents.NewTimeline(a), cluster.NewAlerts(a), cluster.NewAudit(a), cluster.NewCluster(a),
		cluster.NewCost(a), cluster.NewEvents(a), cluster.NewNamespace(a), cluster.NewNode(a), cluster.NewRoutes(a))
	cli.AddGroup(root, "Access:",
		contexts.NewLogin(a), contexts.NewContext(a), access.NewCredentials(a), access.NewKubeconfig(a), access.NewKubeCredential(a))
}

// optionalAgents lets the user leave out AGENT of every command that takes it.
func optionalAgents(a *cmdutil.CLI, cmd *cobra.Command) {
	if words := strings.Fields(cmd.Use); len(words) > 1 && words[1] == "[AGENT]" && cmd.Name() != "version" {
		a.AgentOptional(cmd)
	}
	for _, sub := range cmd.Commands() {
		optionalAgents(a, sub)
	}
}
