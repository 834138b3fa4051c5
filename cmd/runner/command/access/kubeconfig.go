// Package access has the commands about credentials, and those that give kubectl access.
package access

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/atomicfile"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// kubeconfigCommand makes a kubeconfig with which kubectl reaches an agent's cluster.
type kubeconfigCommand struct {
	*cmdutil.CLI
	file, context, namespace string
	use                      bool
}

// NewKubeconfig returns the command kubeconfig.
func NewKubeconfig(a *cmdutil.CLI) *cobra.Command {
	c := &kubeconfigCommand{CLI: a}
	cmd := &cobra.Command{
		Use:   "kubeconfig [AGENT]",
		Short: "Create a kubeconfig for an agent's cluster",
		Long: `Create a kubeconfig for kubectl, helm and other clients of the Kubernetes API. They reach the API
of an agent's cluster through the agent. They act as the user that the cluster owner's policy
names for this Runner, with the permissions that the cluster owner gave to that user.

The kubeconfig contains no secret. kubectl runs pipeops-runner kube-credential to get the Runner's
certificate whenever it starts. An existing file keeps its other contexts.

The cluster owner's policy must name the command kubernetes-api: nothing else allows it. If it
does not, the command prints a warning.`,
		Example: "  pipeops-runner kubeconfig shop --kubeconfig shop.kubeconfig\n  KUBECONFIG=shop.kubeconfig kubectl get pods\n" +
			"  pipeops-runner kubeconfig shop --kubeconfig shop.kubeconfig --kube-context shop-staging -n staging --use",
		Args:              cli.ExactArgs("AGENT"),
		ValidArgsFunction: a.CompleteAgent,
		RunE:              func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), args[0]) },
	}
	f := cmd.Flags()
	cmdutil.NamespaceFlag(cmd, &c.namespace)
	f.StringVar(&c.file, "kubeconfig", "", "file to write or add to, readable only by its owner (default: standard output)")
	f.StringVar(&c.context, "kube-context", "", "name of the context (default: pipeops-AGENT)")
	f.BoolVar(&c.use, "use", false, "make it the current context of a file that has another one")
	return cmd
}

func (c *kubeconfigCommand) run(ctx context.Context, nameOrID string) error {
	l, agent, err := c.Find(ctx, nameOrID)
	if err != nil {
		return err
	}
	entry, err := c.entry(l, agent)
	if err != nil {
		return err
	}
	config := kubeconfig{}
	if c.file != "" {
		if config, err = readKubeconfig(c.file); err != nil {
			return &cmdutil.ExitError{Err: err, Code: cmdutil.ExitUsage}
		}
	}
	if err := config.add(entry, c.use); err != nil {
		return &cmdutil.ExitError{Err: fmt.Errorf("%s: %w", c.file, err), Code: cmdutil.ExitUsage}
	}
	text, err := config.encode()
	if err != nil {
		return err
	}
	if c.file == "" {
		err = cli.Raw(c.Out, text)
		c.warn(ctx, l, agent)
		return err
	}
	if err := replaceFile(c.file, text); err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	c.warn(ctx, l, agent)
	c.Say("wrote context %s to %s; try: kubectl --kubeconfig %s --context %s get pods", entry.name, c.file, c.file, entry.name)
	return nil
}

// warnPatience is how long the agent may take to answer whether the policy allows it.
const warnPatience = 5 * time.Second

// warn warns that the policy forbids the use of the kubeconfig. kubectl would report that too,
// after five lines of its own about discovery. If the agent cannot be reached, there is no warning.
func (c *kubeconfigCommand) warn(ctx context.Context, l *cmdutil.Login, agent announce.Agent) {
	if agent.State != announce.StateOnline {
		return
	}
	t, err := c.Reach(l, agent)
	if err != nil {
		return
	}
	defer t.Close()
	ctx, cancel := context.WithTimeout(ctx, warnPatience)
	defer cancel()
	if refusal, err := t.Kubernetes().Refusal(ctx, c.namespace); err == nil && refusal != "" {
		c.Say("warning: kubectl will be refused in namespace %s: %s", c.namespace, refusal)
	}
}

// entry returns the way to one agent. Of its endpoints a kubeconfig has room for one.
func (c *kubeconfigCommand) entry(l *cmdutil.Login, agent announce.Agent) (kubeEntry, error) {
	path, err := c.CredentialsFile()
	if err != nil {
		return kubeEntry{}, err
	}
	if path, err = filepath.Abs(path); err != nil {
		return kubeEntry{}, err
	}
	program, err := lastingPath(os.Args[0])
	if err != nil {
		return kubeEntry{}, err
	}
	e := kubeEntry{
		name: c.context, namespace: c.namespace, address: l.Edge, serverName: agent.ID + "." + l.AgentsDomain,
		ca: l.Keep.Credentials().CA, program: program, credentials: path,
	}
	e.name = cmp.Or(e.name, "pipeops-"+agent.Name)
	if len(agent.Endpoints) > 0 {
		e.address, e.serverName = agent.Endpoints[0].Address, agent.Endpoints[0].ServerName
	}
	e.serverName = runnerapi.KubernetesServerName(e.serverName)
	return e, nil
}

// lastingPath returns the path of this program that an update keeps: a link in PATH or the one that
// was called, rather than the versioned or content-addressed file behind it (Homebrew, Nix).
func lastingPath(called string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	file, err := os.Stat(self)
	if err != nil {
		return "", err
	}
	for _, name := range []string{filepath.Base(called), called} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		//nolint:gosec // the person's own PATH
		if found, err := os.Stat(path); err == nil && os.SameFile(file, found) {
			return filepath.Abs(path)
		}
	}
	return self, nil
}

// replaceFile writes a file for its owner only, in one step. A link stays one.
func replaceFile(path string, text []byte) error {
	switch target, err := filepath.EvalSymlinks(path); {
	case err == nil:
		path = target
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return atomicfile.Write(path, text)
}
