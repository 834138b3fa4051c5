package request

import (
	"context"
	"errors"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Error returns what may be sent about err, and logs err if that is not everything.
func Error(ctx context.Context, log zerolog.Logger, err error) *runnerapi.Error {
	id := problem.RequestID(ctx)
	known := &runnerapi.Error{}
	switch {
	case errors.As(err, &known):
		answer := *known
		answer.RequestID = id
		return &answer
	case errors.As(context.Cause(ctx), &known): // the policy allows it no more
		answer := *known
		answer.RequestID = id
		return &answer
	case errors.Is(err, context.DeadlineExceeded):
		known = problem.Errorf(problem.Timeout, "try again; if it stays so, see whether the cluster's API server is healthy",
			"the cluster did not answer in time")
	case ctx.Err() != nil:
		known = problem.Errorf(problem.Unavailable, "send it again", "the call was given up before it was done")
	default:
		log.Error().Err(err).Str("requestId", id).Msg("runner API: a call failed")
		known = problem.Errorf(problem.Internal, "look for the request ID in the agent's log", "an unexpected error occurred")
	}
	known.RequestID = id
	return known
}
