package command

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/agent/launch"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

// errUsage marks what the command line or the configuration got wrong.
var errUsage = errors.New("usage")

// usageError is an error with that mark, which its text leaves out.
type usageError struct{ error }

func (e usageError) Unwrap() []error { return []error{errUsage, e.error} }

// wrong returns err with the mark errUsage.
func wrong(err error) error { return usageError{err} }

// mistake is like wrong for the command line, whose help is the fix.
func mistake(err error) error { return wrong(cli.Usage(err)) }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:         "pipeops-agent",
		Annotations: calledAs(os.Args[0]),
		Short:       "Turn this cluster into a deployment target",
		Long: "pipeops-agent turns the cluster that it runs in into a deployment target.\n\n" +
			"The agent registers with a control plane, opens one outbound FRP tunnel and serves the Runner\n" +
			"API through it. The only inbound port that it opens is the one for health checks.\n\n" +
			"All times are in UTC.",
		Example: "  pipeops-agent run --config /etc/pipeops/agent.yaml",
		Version: version,
	}
	cli.Root(root)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if err := cli.NegativeTime(cmd); err != nil {
			return mistake(err)
		}
		return nil
	}
	cli.AddGroup(root, "The agent itself:", newRun(), newReady(), newConfig(), newDoctor(), newSample())
	cli.AddGroup(root, "What Runners may do, and did:", newPolicy(), newChart(), newApprovals(), newApprove(), newAudit(), newRecording())
	cli.AddGroup(root, "The cluster:", newComponent(), newDashboard())
	root.AddCommand(newBuild(), cli.NewExplain("pipeops-agent"), newVersion(), cli.NewMan(version))
	return root
}

// calledAs names the program as kubectl does where it is a plugin of kubectl.
func calledAs(program string) map[string]string {
	name := strings.TrimSuffix(filepath.Base(program), ".exe")
	if name != "kubectl-pipeops" {
		return nil
	}
	return map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl pipeops"}
}

func newVersion() *cobra.Command {
	return cli.NewVersion("pipeops-agent", version, commit, strings.FieldsFunc(releaseKeys, func(r rune) bool { return r == ',' })...)
}

// execute runs the command and turns its error into text and exit code.
func execute(ctx context.Context, root *cobra.Command, stderr io.Writer) int {
	cmd, err := root.ExecuteContextC(ctx)
	if unknown := cli.UnknownCommand(root, err); unknown != nil {
		err = mistake(unknown)
	}
	if err == nil {
		return exitOK
	}
	cli.PrintError(stderr, cmd, err)
	if errors.Is(err, errUsage) || cli.IsUsage(err) {
		return usageCode()
	}
	return exitError
}

// usageCode returns exitUsage, after which systemd leaves the agent down: the settings must be
// changed first. A newer release in the place of the installed program, for which the settings were
// right, gets another code: it is restarted, and given up after some starts.
func usageCode() int {
	if launch.Launched() {
		return exitError
	}
	return exitUsage
}

// signals ends the context at the first SIGTERM or SIGINT, which drains; a
// second one ends the process at once.
func signals(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	c := make(chan os.Signal, 2)
	signal.Notify(c, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-c
		cancel()
		<-c
		os.Exit(exitError)
	}()
	return ctx, cancel
}
