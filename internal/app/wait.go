package app

import (
	"context"
	"errors"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Wait blocks until the App of at least this generation is settled or ctx ends, and returns the
// newest state either way. It wakes at changes only. An App that is settled in the cache is read
// from the API server: another replica may have restarted it a moment ago, or made it again.
func (e *Engine) Wait(ctx context.Context, key runnerapi.Key, generation int64) (runnerapi.App, error) {
	if err := e.admitWait(ctx, key.Namespace); err != nil {
		return runnerapi.App{}, err
	}
	news, cancel := e.store.Subscribe(key)
	defer cancel()
	var w runnerapi.App
	for {
		a, err := e.store.Get(ctx, key)
		if err != nil && ctx.Err() != nil {
			if w.Name != "" {
				return w, nil
			}
			a, err = e.lastLook(ctx, key)
		}
		if err != nil {
			return runnerapi.App{}, waitProblem(ctx, err)
		}
		if w = a.Wire(); reached(a, w, generation) {
			if a, err = e.lastLook(ctx, key); err != nil {
				return runnerapi.App{}, waitProblem(ctx, err)
			}
			if w = a.Wire(); reached(a, w, generation) {
				return w, nil
			}
		}
		select {
		case <-ctx.Done():
			return w, nil
		case <-news:
		}
	}
}

// reached reports whether a wait for this generation is over.
func reached(a *v1alpha1.App, w runnerapi.App, generation int64) bool {
	return a.Generation >= generation && a.Observed() && w.Settled()
}

// lastTry bounds the look of a wait whose time was up before it saw anything.
const lastTry = 5 * time.Second

// admitWait is like admit for a wait, which returns although its time is up.
func (e *Engine) admitWait(ctx context.Context, namespace string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTry)
	defer cancel()
	return e.store.Admit(ctx, namespace)
}

// lastLook reads the App from the API server, though the time of the wait may be up.
func (e *Engine) lastLook(ctx context.Context, key runnerapi.Key) (*v1alpha1.App, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTry)
	defer cancel()
	a, err := e.store.GetLive(ctx, key)
	if err != nil {
		return nil, appcache.ReadProblem(err, key)
	}
	return a, nil
}

// waitProblem keeps a wait that ends while it reads from looking like a fault.
func waitProblem(ctx context.Context, err error) error {
	p := &problem.Error{}
	if ctx.Err() != nil && !errors.As(err, &p) {
		return problem.Errorf(problem.Timeout, "read the App's status to see how far it got", "the wait ended before the App's state was read")
	}
	return err
}
