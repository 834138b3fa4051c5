package source

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// UseClock has a Keeper that does not run yet wait by another clock for its next look at a source.
func (k *Keeper) UseClock(c clock.WithTicker) {
	k.now, k.reconciler.now, k.reconciler.journal.now = c.Now, c.Now, c.Now
	k.previews.now = c.Now
	k.work.ShutDown()
	k.work = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[runnerapi.Key]{Clock: c})
	k.reporter.now = c.Now
	k.reporter.work.ShutDown()
	k.reporter.work = workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[runnerapi.Key]{Clock: c})
}

// UseBefore has a Keeper that has no sources yet store its records by another function.
func (k *Keeper) UseBefore(f func(context.Context, runnerapi.AuditRecord) error) {
	k.reconciler.journal.begin = f
}

// Look updates one source, and returns when to look again.
func (k *Keeper) Look(ctx context.Context, key runnerapi.Key) time.Duration { return k.look(ctx, key) }

// Add has a Keeper look at sources that a Runner has put.
func (k *Keeper) Add(runner string, sources ...runnerapi.Key) {
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	for _, key := range sources {
		o := newObject(key)
		o.Annotations = map[string]string{objectmeta.ChangedBy: runner}
		u, err := o.write()
		if err == nil {
			err = store.Add(u)
		}
		if err != nil {
			panic(err)
		}
	}
	k.watched.set(append(k.watched.stores, store))
	for _, key := range sources {
		k.work.Add(key)
	}
}

// Again returns when a source is looked at again after an error.
func (k *Keeper) Again(err error, every time.Duration) time.Duration {
	return k.reconciler.again(err, every)
}

// Held reads a source, and returns what writes its status later.
func (k *Keeper) Held(ctx context.Context, key runnerapi.Key) (func(runnerapi.SourceStatus) error, error) {
	sources, err := k.cluster.on(ctx, key.Namespace)
	if err != nil {
		return nil, err
	}
	u, err := sources.Get(ctx, key.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	o, err := read(u)
	return func(s runnerapi.SourceStatus) error { return write(ctx, sources, o, s) }, err
}

// InBuild renames the field of a build's refusal.
var InBuild = inBuild

// Conceal withholds the text of an error that quotes a secret.
var Conceal = conceal
