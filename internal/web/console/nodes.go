package console

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/operatorapi"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// nodesRest is how long an open page leaves an agent alone.
const nodesRest = 5 * time.Second

// nodesData is what the page of an agent's nodes shows.
type nodesData struct {
	web.Rows[nodeRow]
	Agent   announce.Agent
	Problem *problem.Error // why they are unknown
}

type nodeRow struct {
	runnerapi.Node
	State string
	Wrong []string
}

func (p *fleetPages) nodes(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(calling(r.Context()), readTimeout)
	defer cancel()
	data, err := p.readNodes(r.PathValue("name"), r.URL.Query())(ctx)
	if err != nil {
		return err
	}
	live := ""
	if data.Problem == nil { // an agent that refuses is not asked again and again
		live = operatorapi.ConsolePath + "/live/agents/" + url.PathEscape(data.Agent.ID) + "/nodes?" + r.URL.RawQuery
	}
	of := page(r, "Nodes of "+data.Agent.Name, "/console/", live)
	of.Data = data
	p.pages.Render(w, r, http.StatusOK, "nodes", of)
	return nil
}

func (p *fleetPages) nodesLive(w http.ResponseWriter, r *http.Request) error {
	read := p.readNodes(r.PathValue("name"), r.URL.Query())
	return follow(p.site, w, r, "nodes", paced(nodesRest, func(ctx context.Context) (nodesData, error) {
		data, err := read(ctx)
		if err == nil && data.Problem != nil {
			err = data.Problem
		}
		return data, err
	}))
}

func (p *fleetPages) readNodes(name string, query url.Values) func(context.Context) (nodesData, error) {
	return func(ctx context.Context) (data nodesData, err error) {
		found, err := operatorapi.GetAgent.Do(ctx, p.opts.API, operatorapi.GetAgentInput{Agent: name})
		if err != nil {
			return data, err
		}
		data.Agent = found.Agent
		list, err := p.askForNodes(ctx, found.Agent)
		if err != nil {
			data.Problem, err = shownOnPage(err)
			return data, err
		}
		rows := make([]nodeRow, len(list))
		for i, n := range list {
			rows[i] = nodeRow{n, nodeState(n), wrongWithNode(n)}
		}
		data.Rows = web.Paged(rows, query)
		return data, nil
	}
}

// canAsk returns why an agent cannot be asked. What is known to fail is not tried: it would be a
// refusal in the audit log, or take until a timeout.
func (s *site) canAsk(ctx context.Context, agent announce.Agent) error {
	if err := s.opts.ReadsApps(ctx); err != nil {
		return err
	}
	if agent.State != announce.StateOnline {
		return problem.Errorf(problem.Unavailable, "run pipeops-agent doctor in its cluster; it names what does not connect",
			"the agent is %s, and was last seen %s; only an agent that is online answers", agent.State, cli.Ago(agent.LastSeen))
	}
	return nil
}

func (p *fleetPages) askForNodes(ctx context.Context, agent announce.Agent) ([]runnerapi.Node, error) {
	if err := p.canAsk(ctx, agent); err != nil {
		return nil, err
	}
	list, err := operatorapi.ListAgentNodes.Do(ctx, p.opts.API, operatorapi.AgentNodesInput{Agent: agent.ID})
	return list.Items, err
}

// shownOnPage returns a refusal as a part of the page, and anything else as an error.
func shownOnPage(err error) (*problem.Error, error) {
	if known, ok := errors.AsType[*problem.Error](err); ok && known.Status != http.StatusUnauthorized {
		return known, nil
	}
	return nil, err
}

func nodeState(n runnerapi.Node) string {
	switch {
	case !n.Ready:
		return "not ready"
	case !n.Schedulable:
		return "cordoned"
	}
	return "ready"
}

// wrongWithNode returns the conditions that are not as they should be.
func wrongWithNode(n runnerapi.Node) (list []string) {
	for _, c := range n.Conditions {
		good := "False" // such as of MemoryPressure
		if c.Type == "Ready" {
			good = "True"
		}
		if c.Status == good {
			continue
		}
		text := c.Type + " is " + c.Status
		if c.Message != "" {
			text += ": " + c.Message
		} else if c.Reason != "" {
			text += ": " + c.Reason
		}
		list = append(list, text)
	}
	return list
}
