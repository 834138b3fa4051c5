package app

import (
	"context"
	"time"

	"github.com/rs/zerolog"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/pipeops/pipeops-vm-agent/internal/app/apply"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/app/workload"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
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

// Reconcile makes the cluster follow an App, by what the caches hold.
func (e *Engine) Reconcile(ctx context.Context, key runnerapi.Key) error {
	_, err := e.controller.Reconcile(ctx, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: key.Namespace, Name: key.Name}})
	return err
}

// Caches reports whether an object is in the cache.
func (e *Engine) Caches(ctx context.Context, key runnerapi.Key, o client.Object) bool {
	return e.store.Cached.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, o) == nil
}

// ApplyOver writes an App's workload, which was read as have.
func (e *Engine) ApplyOver(ctx context.Context, a *v1alpha1.App, have client.Object) error {
	desired := workload.Of(a)
	if err := apply.Seal(a, desired); err != nil {
		return err
	}
	return apply.New(e.store, e.log, e.clock).ApplyOver(ctx, a, desired, have)
}
