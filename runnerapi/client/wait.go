package client

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	// shortWait is how long the server is asked to wait at a time. It is short, so that replacing
	// the agent in the middle costs nothing.
	shortWait = 20 * time.Second
	// progressWait is the same for callers that report progress.
	progressWait = 2 * time.Second
)

// Progress is what Watch reports while it waits.
type Progress struct {
	App runnerapi.App
	// Unreachable is why the agent cannot be reached now; App is then the last known state.
	Unreachable error
}

// Wait blocks until the App of at least this generation has settled or ctx ends. It returns the
// newest known state in both cases. It outlives restarts and outages of the agent, and returns an
// error only if the agent never answered.
func (a Apps) Wait(ctx context.Context, key runnerapi.Key, generation int64) (runnerapi.App, error) {
	return a.wait(ctx, key, generation, shortWait, func(Progress) {})
}

// Watch is like Wait and reports progress every other second.
func (a Apps) Watch(ctx context.Context, key runnerapi.Key, generation int64, report func(Progress)) (runnerapi.App, error) {
	return a.wait(ctx, key, generation, progressWait, report)
}

func (a Apps) wait(ctx context.Context, key runnerapi.Key, generation int64, step time.Duration, report func(Progress)) (runnerapi.App, error) {
	return await(ctx, a.core, objectRequest("get-app", key), generation, step,
		func(app runnerapi.App, err error) { report(Progress{App: app, Unreachable: err}) },
		func(app runnerapi.App) bool { return app.Generation >= generation && app.Settled() })
}

// await sends a read until the object has settled or ctx ends. It returns the newest known
// state in both cases.
func await[T any](ctx context.Context, c *core, r *request, generation int64, step time.Duration,
	report func(T, error), settled func(T) bool,
) (T, error) {
	var newest T
	var failure error
	answered := false
	for n := 0; ctx.Err() == nil; n++ {
		r.query = map[string]string{"wait": within(ctx, step).String(), "generation": strconv.FormatInt(generation, 10)}
		var now T
		_, err := c.call(ctx, r, &now)
		switch {
		case err == nil:
			newest, failure, answered, n = now, nil, true, 0
			report(now, nil)
			if settled(now) {
				return now, nil
			}
		case ctx.Err() != nil:
			failure = err
		case isOutage(err):
			failure = err
			report(newest, err)
		default:
			return newest, err
		}
		// Also after an answer, so that immediate answers do not make a busy loop.
		if err := pause(ctx, n); err != nil {
			break
		}
	}
	if !answered && failure != nil {
		return newest, failure
	}
	return newest, nil
}

// poll reads an object about every other second, and reports each look, until it is settled or ctx
// ends. It returns the newest known state, and outlives outages of the agent.
func poll[T any](ctx context.Context, get func() (T, error), report func(T), settled func(T) bool) (T, error) {
	var newest T
	for n := 0; ; n++ {
		now, err := get()
		switch {
		case err == nil:
			newest = now
			report(newest)
			if settled(newest) {
				return newest, nil
			}
		case ctx.Err() == nil && !isOutage(err):
			return newest, err
		}
		if err := pause(ctx, min(n, 3)); err != nil {
			return newest, err
		}
	}
}

// isOutage reports whether the agent cannot be reached for now.
func isOutage(err error) bool {
	known, ok := errors.AsType[*runnerapi.Error](err)
	return ok && known.Passing() && known.Code != CodeUntrusted
}

// within shortens a wait so that its answer arrives before ctx ends.
func within(ctx context.Context, step time.Duration) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		step = min(step, max(time.Until(end)*3/4, time.Millisecond))
	}
	return step.Round(time.Millisecond)
}
