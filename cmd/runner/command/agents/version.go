package agents

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/base"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

// versions are those of this program and of an agent.
type versions struct {
	cli.Version
	Agent *agentVersion `json:"agent,omitempty"`
}

// agentVersion is what an agent has told the control plane about itself.
type agentVersion struct {
	Name       string `json:"name"`
	Version    string `json:"version"`
	RunnerAPI  string `json:"runnerApi"`
	Kubernetes string `json:"kubernetes"`
}

// NewVersion returns the command version.
func NewVersion(a *base.CLI, program cli.Version) *cobra.Command {
	var out cli.Output
	var client bool
	cmd := &cobra.Command{
		// AGENT is not left out as elsewhere: without one, the program's own version is enough.
		Use: "version [AGENT]", Short: "Show the versions of this program and of an agent",
		Long: `Show the version of this program. With AGENT, PIPEOPS_AGENT or a context that names an agent, also
show the versions of the agent, of its Runner API and of Kubernetes there.`,
		Example:           "  pipeops-runner version\n  pipeops-runner version shop -o json",
		Args:              cli.RangeArgs(0, "AGENT"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			v := versions{Version: program}
			name, err := agentNamed(a, args)
			if err == nil && name != "" && !client {
				v.Agent, err = askVersion(cmd.Context(), a, name)
			}
			if told := out.Write(a.Out, v, func(w io.Writer) { sayVersions(w, v) }); told != nil {
				return told
			}
			return err
		},
	}
	out.Add(cmd)
	cmd.Flags().BoolVar(&client, "client", false, "show the version of this program only")
	return cmd
}

func agentNamed(a *base.CLI, args []string) (string, error) {
	if len(args) > 0 {
		return args[0], nil
	}
	return a.DefaultAgent()
}

func askVersion(ctx context.Context, a *base.CLI, name string) (*agentVersion, error) {
	l, agent, err := a.Find(ctx, name)
	if err != nil {
		return nil, err
	}
	l.Keep.Close()
	return &agentVersion{
		Name: agent.Name, Version: agent.AgentVersion, RunnerAPI: agent.RunnerAPIVersion, Kubernetes: agent.KubernetesVersion,
	}, nil
}

func sayVersions(w io.Writer, v versions) {
	v.Say(w)
	if g := v.Agent; g != nil {
		cli.Say(w, "agent %s %s (Runner API %s, Kubernetes %s)", g.Name, cli.Printable(g.Version), cli.Printable(g.RunnerAPI), cli.Printable(g.Kubernetes))
	}
}
