package server

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
)

type (
	revisionListOutput struct{ Body runnerapi.RevisionList }
	operationOutput    struct{ Body runnerapi.Operation }
)

func (s *server) lifecycleRoutes() {
	registerLong(s, s.mayWait(operation("pause-app", "Apps", "Pause an App",
		"Leaves everything that was made from the App as it is, whatever its spec says, until it is resumed.", 0)), s.pauseApp)
	registerLong(s, s.mayWait(operation("resume-app", "Apps", "Resume an App",
		"Rolls out what was changed while the App was paused.", 0)), s.resumeApp)
	register(s, operation("list-app-revisions", "Apps", "List an App's revisions",
		"What a rollback can go back to, newest first: who made it, when, and what it changed.", 0), s.listRevisions)
	registerLong(s, s.mayWait(operation("rollback-app", "Apps", "Roll an App back",
		"Goes back to a revision, by default the one before the current one, as a new revision. The number of pods, autoscaling and paused stay as they are. With an Idempotency-Key it is done once, however often it is sent.",
		maxSmallBody)), s.rollbackApp)
	register(s, operation("get-operation", "Operations", "Get an operation",
		"What became of a write, by the ID that its answer carried in Operation-Id. Kept for a day.", 0), s.getOperation)
}

func (s *server) pauseApp(ctx context.Context, in *struct {
	params.App
	params.Write
	params.Wait
}) (*appOutput, error) {
	return s.write(ctx, appKey(in.App), in.Write, in.Wait, func(ctx context.Context, opts runnerapi.WriteOptions) (runnerapi.App, error) {
		return s.Apps.Pause(ctx, appKey(in.App), opts)
	})
}

func (s *server) resumeApp(ctx context.Context, in *struct {
	params.App
	params.Write
	params.Wait
}) (*appOutput, error) {
	return s.write(ctx, appKey(in.App), in.Write, in.Wait, func(ctx context.Context, opts runnerapi.WriteOptions) (runnerapi.App, error) {
		return s.Apps.Resume(ctx, appKey(in.App), opts)
	})
}

func (s *server) listRevisions(ctx context.Context, in *params.App) (*revisionListOutput, error) {
	items, err := s.Apps.Revisions(ctx, appKey(*in))
	return &revisionListOutput{Body: runnerapi.RevisionList{Items: notNil(items)}}, err
}

func (s *server) rollbackApp(ctx context.Context, in *struct {
	params.App
	params.Write
	params.Wait
	Body *runnerapi.RollbackTo
}) (*appOutput, error) {
	var to runnerapi.RollbackTo
	if in.Body != nil {
		to = *in.Body
	}
	return s.write(ctx, appKey(in.App), in.Write, in.Wait, func(ctx context.Context, opts runnerapi.WriteOptions) (runnerapi.App, error) {
		return s.Apps.Rollback(ctx, appKey(in.App), to, opts)
	})
}

func (s *server) getOperation(ctx context.Context, in *params.Operation) (*operationOutput, error) {
	if s.Journal == nil {
		return nil, problem.Errorf(problem.NotFound, "", "this agent keeps no operations")
	}
	r, err := s.Journal.Find(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	op := runnerapi.Operation{
		ID: r.ID, Command: r.Command, State: runnerapi.OperationPending, Namespace: r.Target.Namespace, Name: r.Target.Name,
		Runner: r.Caller.Runner, RequestID: r.Caller.RequestID, StartedAt: r.StartedAt,
	}
	switch {
	case !r.Done && !deletes(r.Command):
		op.Message = "it was taken, and nothing is known of it yet; send it again with its Idempotency-Key if that stays so"
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
		outcome, err := s.Outcomes.Outcome(ctx, r)
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
