package agents

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// versions are those of this program, the control plane and an agent.
type versions struct {
	cli.Version
	ControlPlane *cli.ServerVersion `json:"controlPlane,omitempty"`
	Agent        *agentVersion      `json:"agent,omitempty"`
}

// agentVersion is what an agent has told the control plane about itself.
type agentVersion struct {
	Name       string         `json:"name"`
	State      announce.State `json:"state,omitempty"`
	Version    string         `json:"version,omitempty"`
	RunnerAPI  string         `json:"runnerApi,omitempty"`
	Kubernetes string         `json:"kubernetes,omitempty"`
	// Error is why the versions are unknown. It is not an error of the command.
	Error string `json:"error,omitempty"`
}

// version is the command.
type version struct {
	*cmdutil.CLI
	program cli.Version
	out     cli.Output
	client  bool
}

// NewVersion returns the command version.
func NewVersion(a *cmdutil.CLI, program cli.Version) *cobra.Command {
	v := &version{CLI: a, program: program}
	cmd := &cobra.Command{
		// AGENT is not left out as elsewhere: without one, the other versions are enough.
		Use: "version [AGENT]", Short: "Show the versions of this program, the control plane and an agent",
		Long: `Show the version of this program and of the control plane. With AGENT, PIPEOPS_AGENT or a context
that names an agent, also show the versions of the agent, of its Runner API and of Kubernetes there.
They are those that the agent last reported.

If the control plane cannot be reached, one line says so, and the exit code is 0. The command tries
for a few seconds, or for as long as --patience says.`,
		Example:           "  pipeops-runner version\n  pipeops-runner version shop -o json",
		Args:              cli.RangeArgs(0, "AGENT"),
		ValidArgsFunction: a.CompleteAgent,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !cmd.Flags().Changed("patience") {
				a.Patience = 0 // one try
			}
			return v.run(cmd.Context(), args)
		},
	}
	v.out.Add(cmd)
	cmd.Flags().BoolVar(&v.client, "client", false, "show the version of this program only")
	return cmd
}

func (v *version) run(ctx context.Context, args []string) (err error) {
	found := versions{Version: v.program}
	if !v.client {
		found.ControlPlane = v.askControlPlane(ctx)
		found.Agent, err = v.askAgent(ctx, args, found.ControlPlane.Error == "")
	}
	return errors.Join(v.out.Write(v.Out, found, func(w io.Writer) { sayVersions(w, found) }), err)
}

func (v *version) askControlPlane(ctx context.Context) *cli.ServerVersion {
	l, err := v.Login(ctx)
	if err != nil {
		return cli.NewServerVersion("", "", err)
	}
	number, err := l.ServerVersion(ctx)
	return cli.NewServerVersion(l.ControlPlane, number, err)
}

// askAgent returns the versions of the agent that the user or the context named; nil if none did.
// An agent that does not exist is an error if the user named it here.
func (v *version) askAgent(ctx context.Context, args []string, reachable bool) (*agentVersion, error) {
	name := strings.Join(args, "")
	if name == "" {
		var err error
		if name, err = v.DefaultAgent(); err != nil || name == "" {
			return nil, err
		}
	}
	if !reachable {
		return &agentVersion{Name: name, Error: "the control plane has not answered"}, nil
	}
	l, agent, err := v.Find(ctx, name)
	if err != nil {
		if refused := (&problem.Error{}); len(args) > 0 && errors.As(err, &refused) && refused.Status == http.StatusNotFound {
			return nil, err
		}
		return &agentVersion{Name: name, Error: strings.Join(strings.Fields(err.Error()), " ")}, nil
	}
	l.Keep.Close()
	return &agentVersion{
		Name: agent.Name, State: agent.State, Version: agent.AgentVersion, RunnerAPI: agent.RunnerAPIVersion, Kubernetes: agent.KubernetesVersion,
	}, nil
}

func sayVersions(w io.Writer, v versions) {
	v.Say(w)
	if v.ControlPlane != nil {
		v.ControlPlane.Say(w)
	}
	switch g := v.Agent; {
	case g == nil:
	case g.Error != "":
		cli.Say(w, "agent %s: version unknown: %s", cli.Printable(g.Name), cli.Printable(g.Error))
	default:
		cli.Say(w, "agent %s %s (%s, Runner API %s, Kubernetes %s)", g.Name, cli.Printable(g.Version), g.State, cli.Printable(g.RunnerAPI), cli.Printable(g.Kubernetes))
	}
}
