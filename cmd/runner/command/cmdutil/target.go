package cmdutil

import (
	"context"
	"fmt"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// Target is an agent and the connection to it.
type Target struct {
	*client.Client
	Agent announce.Agent
}

func (t *Target) String() string { return fmt.Sprintf("agent %s (%s)", t.Agent.Name, t.Agent.ID) }

// On calls do with a client of the named agent, and adds the agent to errors.
func (a *CLI) On(ctx context.Context, nameOrID string, do func(context.Context, *Target) error) error {
	l, agent, err := a.Find(ctx, nameOrID)
	if err != nil {
		return err
	}
	t, err := a.Reach(l, agent)
	if err != nil {
		return err
	}
	defer t.Close()
	return near(ctx, t, do(ctx, t))
}

// Find logs in and looks an agent up by its name or ID.
func (a *CLI) Find(ctx context.Context, nameOrID string) (l *Login, agent announce.Agent, err error) {
	if l, err = a.Login(ctx); err != nil {
		return l, agent, err
	}
	agent, err = l.Find(ctx, nameOrID)
	return l, agent, err
}

// around inspects the agents' answers in the program that end-to-end tests build; nil otherwise.
var around func(http.RoundTripper) http.RoundTripper

// around returns what inspects the agents' answers; nil for nothing.
func (a *CLI) around() func(http.RoundTripper) http.RoundTripper {
	switch {
	case a.Verbose == 0:
		return around
	case around == nil:
		return a.inspected
	}
	return func(next http.RoundTripper) http.RoundTripper { return a.inspected(around(next)) }
}

// Reach returns the connection to an agent that was found.
func (a *CLI) Reach(l *Login, agent announce.Agent) (*Target, error) {
	switch agent.State {
	case announce.StateOffline, announce.StatePending:
		a.Say("agent %s is %s (last seen %s); trying for %s", agent.Name, agent.State, cli.Ago(agent.LastSeen), a.Patience)
	}
	config := l.Keep.Reach(agent)
	config.Patience, config.UserAgent = max(a.Patience, 1), "pipeops-runner/"+a.Version
	config.Slow, config.Around = newSlowness(a.Streams, "agent "+agent.Name).report, a.around()
	client, err := client.New(config)
	if err != nil {
		return nil, err
	}
	return &Target{Client: client, Agent: agent}, nil
}
