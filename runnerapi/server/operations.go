package server

import (
	"context"
	"encoding/json"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
)

type operationOutput struct{ Body runnerapi.Operation }

// operationCalls are the calls about operations.
type operationCalls struct {
	*calls
	journal  backend.Journal
	outcomes backend.Outcomes
	releases backend.Releases
}

func (s *operationCalls) routes() {
	register(s.calls, operation("get-operation", "Operations", "Get an operation",
		"What became of a write, by the ID that its answer carried in Operation-Id. Kept for a day.", 0), s.getOperation)
}

func (s *operationCalls) getOperation(ctx context.Context, in *params.Operation) (*operationOutput, error) {
	if s.journal == nil {
		return nil, problem.Errorf(problem.NotFound, "", "this agent keeps no operations")
	}
	r, err := s.journal.Find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	op := runnerapi.Operation{
		ID: r.ID, Command: r.Command, State: runnerapi.OperationPending, Namespace: r.Target.Namespace, Name: r.Target.Name,
		Runner: r.Caller.Runner, RequestID: r.Caller.RequestID, StartedAt: r.StartedAt,
	}
	switch {
	case !r.Done && !deletes(r.Command):
		op.Message = "it was accepted; its outcome is not known yet; send it again with its Idempotency-Key if that stays so"
	case releaseCommands[r.Command]:
		if op.State, op.Message, err = s.releaseOutcome(ctx, r); err != nil {
			return nil, err
		}
	case r.App == nil && !deletes(r.Command):
		op.State = runnerapi.OperationSucceeded
	default:
		if r.App != nil {
			op.Generation = r.App.Generation
		}
		outcome, err := s.outcomes.Outcome(ctx, r)
		if err != nil {
			return nil, err
		}
		op.State, op.Message, op.Diagnosis = outcome.State, outcome.Message, outcome.Diagnosis
	}
	return &operationOutput{Body: op}, nil
}

// deletes reports whether a command's outcome may come after its answer without being an App.
func deletes(command string) bool {
	return command == "delete-app" || command == "delete-job" || command == "delete-pipeline"
}

// releaseCommands are those that go on after they were answered.
var releaseCommands = map[string]bool{"put-release": true, "rollback-release": true, "delete-release": true}

// releaseOutcome returns what became of a command about a release, by the revision that it was
// answered with.
func (s *operationCalls) releaseOutcome(ctx context.Context, r backend.Record) (runnerapi.OperationState, string, error) {
	var was runnerapi.Release
	if len(r.Answer) > 0 {
		if err := json.Unmarshal(r.Answer, &was); err != nil {
			return "", "", err
		}
	}
	history, err := s.releases.History(ctx, r.Target)
	switch {
	case problem.Is(err, problem.NotFound) && (r.Command == "delete-release" || was.Status == runnerapi.ReleaseUninstalled):
		return runnerapi.OperationSucceeded, "", nil
	case problem.Is(err, problem.NotFound):
		return runnerapi.OperationSuperseded, "the release is no longer there", nil
	case err != nil:
		return "", "", err
	}
	for i, at := range history {
		switch {
		case was.Revision != 0 && at.Revision != was.Revision || was.Revision == 0 && i > 0:
		case at.Busy():
			return runnerapi.OperationPending, at.Operation.Progress, nil
		case at.Status == runnerapi.ReleaseFailed:
			return runnerapi.OperationFailed, at.Description, nil
		case r.Command == "delete-release":
			return runnerapi.OperationSuperseded, "the release was deployed again", nil
		case at.Status == runnerapi.ReleaseDeployed || at.Status == runnerapi.ReleaseSuperseded:
			return runnerapi.OperationSucceeded, "", nil
		default:
			return runnerapi.OperationPending, at.Description, nil
		}
	}
	return runnerapi.OperationSuperseded, "the revision is no longer kept", nil
}
