package app

import (
	"context"
	"time"

	"github.com/rs/zerolog"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AdoptLoggers is adoptLoggers.
func AdoptLoggers(log zerolog.Logger) { adoptLoggers(log) }

// WithoutRechecks has the Engine look at an App again only when an event tells of it. It is called
// before Run.
func (e *Engine) WithoutRechecks() { e.noRechecks = true }

// Clock has the Engine take the time from somewhere else. It is called before Run.
func (e *Engine) Clock(now func() time.Time) { e.now = now }

// OutOfThePodsNetwork has the Engine reach no pod itself. It is called before Run.
func (e *Engine) OutOfThePodsNetwork() {
	e.ports.reach.Dial = func(context.Context, string) error { return context.DeadlineExceeded }
}

// Converge makes the cluster follow an App as it is given.
func (e *Engine) Converge(ctx context.Context, a *App) error {
	_, err := e.converge(ctx, a)
	return err
}

// ApplyOver writes an App's workload, which was read as have.
func (e *Engine) ApplyOver(ctx context.Context, a *App, have client.Object) error {
	desired := workload(a)
	if err := seal(a, desired); err != nil {
		return err
	}
	return e.applyOver(ctx, a, desired, have)
}
