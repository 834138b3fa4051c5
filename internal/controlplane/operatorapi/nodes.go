package operatorapi

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/administration"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
)

// ListAgentNodes asks the agent, as the Runner as which the operator acts.
var ListAgentNodes = Call[AgentNodesInput, List[runnerapi.Node]]{
	Description{Method: "GET", Path: Prefix + "agents/{agent}/nodes", ID: "list-agent-nodes", Role: administration.RoleViewer, Command: "pipeops-runner node list",
		Summary: "List the nodes of an agent's cluster, as a Runner"},
	func(ctx context.Context, a *administration.Admin, in *AgentNodesInput) (List[runnerapi.Node], error) {
		return onAgent(ctx, a, AppKey{Agent: in.Agent}, func(c *client.Client) (List[runnerapi.Node], error) {
			return listOf(c.Nodes().List(ctx))
		})
	},
}

// AgentNodesInput names an agent.
type AgentNodesInput struct {
	Agent string `path:"agent" maxLength:"63"`
}
