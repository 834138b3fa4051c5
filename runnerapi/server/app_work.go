package server

import (
	"context"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/params"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/backend"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/once"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/transport"
)

// appWork is what the calls about Apps, and about the Jobs and Pipelines that are Apps, share.
type appWork struct {
	*calls
	apps     backend.Apps
	outcomes backend.Outcomes
}

// write carries out a command on an App and waits for its outcome if asked to.
func (s *appWork) write(ctx context.Context, key runnerapi.Key, wp params.Write, wait params.Wait,
	command func(context.Context, runnerapi.WriteOptions) (runnerapi.App, error),
) (*appOutput, error) {
	d, err := wait.Duration()
	if err != nil {
		return nil, err
	}
	op := once.From(ctx)
	app, err := request.Limited(ctx, s.timeout, func(ctx context.Context) (runnerapi.App, error) {
		if op != nil && op.Known { // another replica may have carried it out
			return s.outcomes.GetLive(ctx, key)
		}
		return command(ctx, s.writeOptions(ctx, wp))
	})
	if err != nil {
		return nil, err
	}
	if wp.DryRun {
		return &appOutput{Status: http.StatusOK, Body: app}, nil
	}
	app.Namespace, app.Name = key.Namespace, key.Name
	if op == nil {
		return s.settle(ctx, app, app.Generation, d, http.StatusAccepted)
	}
	if !op.Known {
		s.commands.Accepted(ctx, op, app)
	}
	out, err := s.settle(ctx, app, op.App.Generation, d, http.StatusAccepted)
	if err != nil {
		return nil, err
	}
	out.Body.Operation = op.ID
	if d > 0 {
		err = s.addOutcome(ctx, op, out)
	}
	return out, err
}

// read reads an App. For a wait it includes what another replica of the agent wrote a moment ago:
// an App that seems settled is not waited for.
func (s *appWork) read(ctx context.Context, key runnerapi.Key, wait time.Duration) (runnerapi.App, error) {
	get := s.apps.Get
	if wait > 0 {
		get = s.outcomes.GetLive
	}
	return request.Limited(ctx, s.timeout, func(ctx context.Context) (runnerapi.App, error) { return get(ctx, key) })
}

// addOutcome adds to the answer what became of the command itself: a later one may have come while
// the call waited, and the App's status then describes that one.
func (s *appWork) addOutcome(ctx context.Context, op *once.Command, out *appOutput) error {
	outcome, err := request.Limited(ctx, s.timeout, func(ctx context.Context) (runnerapi.Outcome, error) { return s.outcomes.Outcome(ctx, op.Record) })
	if err != nil {
		return err
	}
	out.Body.Outcome = &outcome
	if outcome.State != runnerapi.OperationPending {
		out.Status = http.StatusOK
	}
	return nil
}

// settle answers 200 with the outcome. It answers with the given status if there is no outcome
// after the time to wait, or when the agent shuts down.
func (s *appWork) settle(ctx context.Context, app runnerapi.App, generation int64, wait time.Duration, otherwise int) (*appOutput, error) {
	settled := func() bool { return app.Settled() && app.Generation >= generation }
	if wait > 0 && !settled() {
		ctx, cancel := transport.UntilDrain(ctx)
		defer cancel()
		ctx, cancel = context.WithTimeout(ctx, wait)
		defer cancel()
		newest, err := s.apps.Wait(ctx, runnerapi.Key{Namespace: app.Namespace, Name: app.Name}, generation)
		switch {
		case err == nil:
			app = newest
		case ctx.Err() == nil:
			return nil, err
		}
	}
	if settled() {
		otherwise = http.StatusOK
	}
	return &appOutput{Status: otherwise, Body: app}, nil
}
