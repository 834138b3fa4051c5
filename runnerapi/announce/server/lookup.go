package server

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// AgentHandler serves one agent to Runners, below AgentPath. identify returns the Runner that asks.
// find returns the agent if that Runner may see it, or a [problem.Error].
func AgentHandler(
	find func(ctx context.Context, runner, nameOrID string) (announce.Agent, error),
	identify func(*http.Request) (runner string, err error),
) http.Handler {
	return jsonHandler(func(w http.ResponseWriter, r *http.Request) ([]byte, error) {
		runner, err := identified(w, r, identify)
		if err != nil {
			return nil, err
		}
		agent, err := find(r.Context(), runner, r.PathValue("agent"))
		if err != nil {
			return nil, err
		}
		return json.Marshal(agent)
	})
}
