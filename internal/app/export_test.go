package app

import (
	"context"
	"time"

	"github.com/rs/zerolog"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/pipeops/pipeops-vm-agent/internal/app/apply"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
)

// AdoptLoggers is adoptLoggers.
func AdoptLoggers(log zerolog.Logger) { adoptLoggers(log) }

// WithoutRechecks has the Engine look at an App again only when an event tells of it. It is called
// before Run.
func (e *Engine) WithoutRechecks() { e.controller.NoRechecks = true }

// Clock has the Engine take the time from somewhere else. It is called before Run.
func (e *Engine) Clock(now func() time.Time) { e.now = now }

// OutOfThePodsNetwork has the Engine reach no pod itself. It is called before Run.
func (e *Engine) OutOfThePodsNetwork() {
	e.collector.DialWith(func(context.Context, string) error { return context.DeadlineExceeded })
}

// Converge makes the cluster follow an App as it is given.
func (e *Engine) Converge(ctx context.Context, a *v1alpha1.App) error {
	return e.controller.Converge(ctx, a)
}

// ApplyOver writes an App's workload, which was read as have.
func (e *Engine) ApplyOver(ctx context.Context, a *v1alpha1.App, have client.Object) error {
	desired := workload.Of(a)
	if err := apply.Seal(a, desired); err != nil {
		return err
	}
	return apply.New(e.store, e.log, e.clock).ApplyOver(ctx, a, desired, have)
}
