package server

import (
	"context"
	"net/http"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

type (
	joinOutput      struct{ Body runnerapi.JoinCommand }
	joinTokenOutput struct {
		CacheControl string `header:"Cache-Control"`
		Body         runnerapi.JoinToken
	}
)

// joinCalls are the calls about joining workers.
type joinCalls struct {
	*calls
	nodes backend.Nodes
}

func (s *joinCalls) routes() {
	register(s.calls, alsoRefuses(operation("get-join-command", "Cluster", "How a worker joins the cluster",
		"The line of shell for a machine that is to join, where the cluster is k3s. It has no token in it.", 0), http.StatusNotImplemented), s.joinCommand)
	register(s.calls, alsoRefuses(operation("get-join-token", "Cluster", "Get the token for joining",
		"What the line of shell needs as K3S_TOKEN, where the agent was given one. It is a secret, and in no log. The customer's policy has to name this command.", 0), http.StatusNotImplemented), s.joinToken)
}

func (s *joinCalls) joinCommand(ctx context.Context, _ *struct{}) (*joinOutput, error) {
	command, err := s.nodes.JoinCommand(ctx)
	return &joinOutput{Body: command}, err
}

func (s *joinCalls) joinToken(ctx context.Context, _ *struct{}) (*joinTokenOutput, error) {
	token, err := s.nodes.JoinToken(ctx)
	return &joinTokenOutput{CacheControl: "no-store", Body: token}, err
}
