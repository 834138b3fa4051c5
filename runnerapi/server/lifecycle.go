package server

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

type revisionListOutput struct{ Body runnerapi.RevisionList }

// lifecycleCalls are the calls about an App's rollouts.
type lifecycleCalls struct {
	*appWork
}

func (s *lifecycleCalls) routes() {
	registerLong(s.calls, s.mayWait(operation("pause-app", "Apps", "Pause an App",
		"Leaves everything that was made from the App as it is, whatever its spec says, until it is resumed.", 0)), s.pauseApp)
	registerLong(s.calls, s.mayWait(operation("resume-app", "Apps", "Resume an App",
		"Rolls out what was changed while the App was paused.", 0)), s.resumeApp)
	register(s.calls, operation("list-app-revisions", "Apps", "List an App's revisions",
		"What a rollback can go back to, newest first: who made it, when, and what it changed.", 0), s.listRevisions)
	registerLong(s.calls, s.mayWait(operation("rollback-app", "Apps", "Roll an App back",
		"Goes back to a revision, by default the one before the current one, as a new revision. The number of pods, autoscaling and paused stay as they are. With an Idempotency-Key it is done once, however often it is sent.",
		request.MaxSmallBody)), s.rollbackApp)
}

func (s *lifecycleCalls) pauseApp(ctx context.Context, in *struct {
	params.App
	params.Write
	params.Wait
}) (*appOutput, error) {
	return s.write(ctx, appKey(in.App), in.Write, in.Wait, func(ctx context.Context, opts runnerapi.WriteOptions) (runnerapi.App, error) {
		return s.apps.Pause(ctx, appKey(in.App), opts)
	})
}

func (s *lifecycleCalls) resumeApp(ctx context.Context, in *struct {
	params.App
	params.Write
	params.Wait
}) (*appOutput, error) {
	return s.write(ctx, appKey(in.App), in.Write, in.Wait, func(ctx context.Context, opts runnerapi.WriteOptions) (runnerapi.App, error) {
		return s.apps.Resume(ctx, appKey(in.App), opts)
	})
}

func (s *lifecycleCalls) listRevisions(ctx context.Context, in *params.App) (*revisionListOutput, error) {
	items, err := s.apps.Revisions(ctx, appKey(*in))
	return &revisionListOutput{Body: runnerapi.RevisionList{Items: notNil(items)}}, err
}

func (s *lifecycleCalls) rollbackApp(ctx context.Context, in *struct {
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
		return s.apps.Rollback(ctx, appKey(in.App), to, opts)
	})
}
