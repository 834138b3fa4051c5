package controller

import (
	"context"
	"time"

	"github.com/rs/zerolog"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/pipeops/pipeops-vm-agent/internal/app/appcache"
	"github.com/pipeops/pipeops-vm-agent/internal/app/apply"
	"github.com/pipeops/pipeops-vm-agent/internal/app/events"
	"github.com/pipeops/pipeops-vm-agent/internal/app/evidence"
	"github.com/pipeops/pipeops-vm-agent/internal/app/ingress"
	"github.com/pipeops/pipeops-vm-agent/internal/app/leader"
	"github.com/pipeops/pipeops-vm-agent/internal/app/revision"
	"github.com/pipeops/pipeops-vm-agent/internal/app/rollout"
	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	workers  = 5
	maxRetry = 30 * time.Second
)

// Controller makes the cluster follow the Apps, and writes into their status what it observes.
type Controller struct {
	store     *appcache.Store
	election  *leader.Election
	applier   *apply.Applier
	history   *revision.History
	writer    *rollout.Writer
	router    *ingress.Router
	collector *evidence.Collector
	sender    *events.Sender
	log       zerolog.Logger
	now       func() time.Time
	// NoRechecks leaves Apps alone until an event about them arrives, or until a grace of a second
	// has passed. Only tests set it.
	NoRechecks bool

	jobs     jobs
	contents contents
	troubles troubles
}

// Config is what a Controller works with.
type Config struct {
	Store     *appcache.Store
	Election  *leader.Election
	Applier   *apply.Applier
	History   *revision.History
	Writer    *rollout.Writer
	Router    *ingress.Router
	Collector *evidence.Collector
	Sender    *events.Sender
	Contents  Contents // if it is nil, no App restarts because of them
	Log       zerolog.Logger
	Now       func() time.Time
}

// New returns a Controller.
func New(cfg Config) *Controller {
	return &Controller{
		store: cfg.Store, election: cfg.Election, applier: cfg.Applier, history: cfg.History, writer: cfg.Writer,
		router: cfg.Router, collector: cfg.Collector, sender: cfg.Sender, log: cfg.Log, now: cfg.Now,
		jobs:     jobs{store: cfg.Store, applier: cfg.Applier, now: cfg.Now},
		contents: contents{store: cfg.Store, source: cfg.Contents, now: cfg.Now},
	}
}

// ContentChanged restarts the Apps that use an object and asked for restarts. It is called after
// each write through the agent.
func (c *Controller) ContentChanged(ctx context.Context, kind runnerapi.RestartTrigger, key runnerapi.Key) error {
	return c.contents.changed(ctx, kind, key)
}

// SetupWithManager registers Reconcile, which runs for an App whenever the App, an object made from
// it, or its namespace changes.
func (c *Controller) SetupWithManager(mgr manager.Manager) error {
	b := builder.ControllerManagedBy(mgr).Named("app").Watches(&v1alpha1.App{}, onChangedApp(c.sender.Ended))
	for _, o := range append(appcache.Wholes(), &appsv1.ReplicaSet{}, &batchv1.Job{}, &corev1.Pod{}) {
		b = b.Watches(o, onNewsOfApp())
	}
	return b.WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(c.appsOf)).
		WatchesRawSource(source.Channel(c.store.Resynced(), &handler.TypedEnqueueRequestForObject[*v1alpha1.App]{})).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](
				50*time.Millisecond, maxRetry),
			NewQueue:     newTurns,
			RecoverPanic: new(true),
		}).
		Complete(c)
}

// appsOf returns the Apps of a namespace that became managed or ceased to be.
func (c *Controller) appsOf(ctx context.Context, ns client.Object) []reconcile.Request {
	var list v1alpha1.List
	if err := c.store.Cached.List(ctx, &list, client.InNamespace(ns.GetName()), appcache.Untouched); err != nil {
		return nil // the context ended
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}
