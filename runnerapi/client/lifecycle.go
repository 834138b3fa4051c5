package client

import (
	"context"
	"errors"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/internal/wire"
)

// Pause stops changes to the App, including those of its spec, until Resume.
func (a Apps) Pause(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	return a.command(ctx, objectRequest("pause-app", key), opts)
}

// Resume rolls out what changed while the App was paused.
func (a Apps) Resume(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	return a.command(ctx, objectRequest("resume-app", key), opts)
}

// Revisions returns the revisions that Rollback can return to, newest first.
func (a Apps) Revisions(ctx context.Context, key runnerapi.Key) ([]runnerapi.Revision, error) {
	list, err := fetch[runnerapi.RevisionList](ctx, a.core, objectRequest("list-app-revisions", key))
	return list.Items, err
}

// Rollback returns to a revision, by default the one before the current one.
func (a Apps) Rollback(ctx context.Context, key runnerapi.Key, to runnerapi.RollbackTo, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	return a.command(ctx, objectRequest("rollback-app", key).send(to), opts)
}

// Events calls emit for the App's state and for each change of it. It ends once the App has settled
// or, with Follow, once ctx ends. If the stream breaks off because the agent was replaced or the
// connection was lost, Events resumes it where it ended.
func (a Apps) Events(ctx context.Context, key runnerapi.Key, opts runnerapi.EventOptions, emit func(runnerapi.AppEvent) error) error {
	last, broken := runnerapi.AppEvent{ID: opts.After}, 0
	for n := 0; ; n++ {
		before, began := last.ID, time.Now()
		err := a.events(ctx, key, runnerapi.EventOptions{Follow: opts.Follow, After: last.ID}, func(e runnerapi.AppEvent) error {
			last = e
			return emit(e)
		})
		stop, known := &wire.StoppedError{}, &runnerapi.Error{}
		over := last.Type == runnerapi.EventRemoved || last.Settled && !opts.Follow
		switch {
		case errors.As(err, &stop):
			return stop.Reason
		case err == nil && (over || !opts.Follow):
			return nil
		case opts.Follow && ctx.Err() != nil:
			return nil //nolint:nilerr // it is how following ends
		case ctx.Err() != nil:
			return err
		case errors.As(err, &known) && !known.Passing():
			return err
		}
		if last.ID != before || time.Since(began) > headerTimeout {
			n, broken = 0, 0
		}
		if broken++; broken > maxBroken {
			return err
		}
		if err := pause(ctx, n); err != nil && !opts.Follow {
			return err
		}
	}
}

// events reads the stream over one connection.
func (a Apps) events(ctx context.Context, key runnerapi.Key, opts runnerapi.EventOptions, emit func(runnerapi.AppEvent) error) error {
	ctx, t := withTry(ctx)
	r := objectRequest("get-app-events", key)
	r.accept, r.lastEvent = runnerapi.EventStream, opts.After
	if opts.Follow {
		r.query = map[string]string{"follow": "true"}
	}
	resp, err := a.do(ctx, t, r)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	return wire.ReadEvents(resp.Body, emit)
}
