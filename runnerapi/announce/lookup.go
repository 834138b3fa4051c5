package announce

import (
	"context"
	"fmt"
	"net/http"
	"net/url"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// AgentPath is where the control plane serves one agent, by its name or ID, as a pattern of
// http.ServeMux.
const AgentPath = SnapshotPath + "/{agent}"

// maxAgentAnswer is room for an agent with all its hosts.
const maxAgentAnswer = 4 << 20

// Agent returns the agent with a name or ID. A refusal is a [problem.Error]: not found is also
// an agent that the Runner is not granted. What may pass is tried again a few times first.
func (c *SnapshotClient) Agent(ctx context.Context, nameOrID string) (Agent, error) {
	agent, err := c.agent(ctx, nameOrID)
	if err != nil {
		return Agent{}, fmt.Errorf("ask the control plane for agent %q: %w", printable.Clip(nameOrID), err)
	}
	return agent, nil
}

func (c *SnapshotClient) agent(ctx context.Context, nameOrID string) (agent Agent, err error) {
	switch nameOrID {
	case "", ".", "..": // no path can hold these
		return agent, problem.Errorf(problem.NotFound, "give the name or ID of an agent", "it is neither a name nor an ID")
	}
	text, err := url.JoinPath(c.BaseURL, SnapshotPath, url.PathEscape(nameOrID))
	if err != nil {
		return agent, fmt.Errorf("%w; check its URL", err)
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, text, nil)
	if err != nil {
		return agent, fmt.Errorf("%w; check its URL", err)
	}
	body, err := c.do(req, maxAgentAnswer)
	if err != nil {
		return agent, err
	}
	if err := ofPages.JSON(body, &agent); err != nil {
		return Agent{}, fmt.Errorf("the answer is not the JSON expected: %w; check the control plane's URL", err)
	}
	if err := agent.Validate(); err != nil {
		return Agent{}, fmt.Errorf("the answer: %w", err)
	}
	return agent, nil
}
