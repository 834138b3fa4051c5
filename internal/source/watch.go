package source

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	mergePatch = types.MergePatchType
	// turnedOn is how often a leader checks whether sources were enabled.
	turnedOn = 10 * time.Minute
	// listAgain is the delay before sources are listed again, after that failed.
	listAgain = 5 * time.Second
	// soon is the delay before a retry after a temporary error, unless the interval is shorter.
	soon = 30 * time.Second
	// patience bounds one look at a source.
	patience = 5 * time.Minute
	// jitter is the fraction of its interval by which a look may be early or late, so that not all
	// agents contact a server at once.
	jitter = 0.1
)

// Run follows sources while this replica leads, until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	all, ctx := errgroup.WithContext(ctx)
	for range workers {
		all.Go(func() error {
			k.drain(ctx)
			return nil
		})
	}
	for range reporters {
		all.Go(func() error {
			k.reporter.drain(ctx)
			return nil
		})
	}
	all.Go(func() error {
		k.markLooks(ctx)
		return nil
	})
	all.Go(func() error {
		defer k.work.ShutDown()
		defer k.reporter.work.ShutDown()
		for k.wake.WaitFor(ctx, turnedOn) {
			if k.config.Leads() && k.there(ctx) {
				k.follow(ctx)
			}
		}
		return nil
	})
	return all.Wait()
}

// there reports whether the cluster has sources and lets the agent see them.
func (k *Keeper) there(ctx context.Context) bool {
	for _, r := range k.cluster.everywhere() {
		if _, err := r.List(ctx, metav1.ListOptions{Limit: 1}); err == nil {
			return true
		} else if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			k.config.Log.Warn().Err(err).Msg("failed to list Git sources; retrying")
			retry.Wait(ctx, retry.Jitter(listAgain))
			k.Wake()
		}
	}
	return false
}

// follow watches sources until this replica no longer leads.
func (k *Keeper) follow(ctx context.Context) {
	k.config.Log.Debug().Msg("reconciling Git sources")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	k.reporter.reset()
	if k.config.Heard != nil {
		k.config.Heard(ctx)
	}
	all, ctx := errgroup.WithContext(ctx)
	where := k.cluster.everywhere()
	stores := make([]cache.Store, 0, len(where))
	informers := make([]cache.Controller, 0, len(where))
	for _, r := range where {
		store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
			ListerWatcher: listWatch(r), ObjectType: &unstructured.Unstructured{}, Handler: k.handler(),
			Transform: withoutFields,
		})
		stores, informers = append(stores, store), append(informers, informer)
	}
	k.watched.set(stores)
	defer k.watched.set(nil)
	for _, informer := range informers {
		all.Go(func() error {
			informer.RunWithContext(ctx)
			return nil
		})
	}
	all.Go(func() error {
		k.cleanup.sweep(ctx)
		k.previews.sweep(ctx)
		return nil
	})
	all.Go(func() error {
		defer cancel()
		for k.config.Leads() {
			if !k.wake.WaitFor(ctx, turnedOn) {
				return nil
			}
		}
		k.Wake() // it may lead again by now
		return nil
	})
	_ = all.Wait() // none of them fails
}

func listWatch(r dynamic.ResourceInterface) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return r.List(ctx, o) },
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return r.Watch(ctx, o)
		},
	}
}

func withoutFields(in any) (any, error) {
	if u, ok := in.(*unstructured.Unstructured); ok {
		u.SetManagedFields(nil)
	}
	return in, nil
}

// handler schedules a look at a source when its spec changed, or when a Runner requests one.
// Changes of its status are our own; the sources that follow it are looked at.
func (k *Keeper) handler() cache.ResourceEventHandler {
	add := func(in any) {
		if u, ok := in.(*unstructured.Unstructured); ok {
			k.work.Add(runnerapi.Key{Namespace: u.GetNamespace(), Name: u.GetName()})
		}
	}
	remove := func(in any) {
		if last, missed := in.(cache.DeletedFinalStateUnknown); missed {
			in = last.Obj
		}
		add(in)
		if u, ok := in.(*unstructured.Unstructured); ok {
			k.wakePromoted(runnerapi.Key{Namespace: u.GetNamespace(), Name: u.GetName()})
		}
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: add, DeleteFunc: remove, UpdateFunc: func(before, now any) {
		b, ok1 := before.(*unstructured.Unstructured)
		n, ok2 := now.(*unstructured.Unstructured)
		if !ok1 || !ok2 || b.GetGeneration() != n.GetGeneration() || asked(b) != asked(n) {
			add(now)
		}
		if ok1 && ok2 && applied(b) != applied(n) {
			k.wakePromoted(runnerapi.Key{Namespace: n.GetNamespace(), Name: n.GetName()})
		}
	}}
}

// asked returns who put a source, by which call, and what requested a look last: a call, a push, or
// an approval.
func asked(u *unstructured.Unstructured) [5]string {
	a := u.GetAnnotations()
	return [5]string{a[objectmeta.ChangedBy], a[objectmeta.RequestID], a[objectmeta.Sync], a[objectmeta.Look], a[objectmeta.Approvals]}
}

// drain handles sources until the queue is shut down.
func (k *Keeper) drain(ctx context.Context) {
	k.lanes.Drain(k.work, k.ownerOf, func(key runnerapi.Key) {
		next := soon // it may lead again before follow ends, whose informers then report nothing new
		if ctx.Err() == nil && k.config.Leads() {
			next = k.look(ctx, key)
		}
		if next > 0 {
			k.work.AddAfter(key, next)
		}
	})
}

// ownerOf returns for whom a source is followed; for one that is gone, the namespace alone.
func (k *Keeper) ownerOf(key runnerapi.Key) limit.Owner {
	o := limit.Owner{Namespace: key.Namespace}
	if u := k.watched.get(key); u != nil {
		o.Runner = u.GetAnnotations()[objectmeta.ChangedBy]
	}
	return o
}

// look updates one source, and returns when to look again; 0 for not before it changes.
func (k *Keeper) look(ctx context.Context, key runnerapi.Key) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	sources, err := k.cluster.on(ctx, key.Namespace)
	if problem.Is(err, runnerapi.CodeNamespaceNotManaged) && k.watched.lacks(key) { // it went with its namespace
		return k.forget(ctx, key)
	}
	if err != nil {
		k.config.Log.Warn().Err(err).Stringer("source", key).Msg("the source is not reconciled")
		if p, ok := errors.AsType[*problem.Error](err); ok && p.Passing() {
			return soon
		}
		return turnedOn
	}
	u, err := sources.Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return k.forget(ctx, key)
	}
	var o *object
	if err == nil {
		o, err = read(u)
	}
	if err != nil {
		k.config.Log.Warn().Err(err).Stringer("source", key).Msg("failed to read the source; retrying")
		return soon
	}
	ctx = limit.WithRunner(ctx, o.caller().Runner)
	status, next := k.reconciler.reconcile(ctx, o)
	previews, again := k.previews.reconcile(ctx, o)
	if status.Previews = previews; again > 0 && (next == 0 || again < next) {
		next = again
	}
	if ctx.Err() != nil {
		return soon
	}
	if err := k.reporter.write(ctx, sources, o, status); err != nil && !apierrors.IsNotFound(err) {
		k.config.Log.Warn().Err(err).Stringer("source", key).Msg("failed to write the source's status; retrying")
		return soon
	}
	return next
}

// forget ends what there is of a source that was deleted. It returns when to try again; 0 if it is
// done.
func (k *Keeper) forget(ctx context.Context, key runnerapi.Key) time.Duration {
	k.cleanup.gone(ctx, key)
	k.reporter.forget(key)
	return k.previews.gone(ctx, key)
}

// write writes the status of the source. It fails if the source is gone, or another one has its
// name now. With this status the other one would seem up to date: its generation starts at 1 again.
func write(ctx context.Context, sources dynamic.ResourceInterface, o *object, s runnerapi.SourceStatus) error {
	// As a whole, so that removed fields disappear.
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/uid", "value": o.UID}, {"op": "add", "path": "/status", "value": s},
	})
	if err != nil {
		return err
	}
	_, err = sources.Patch(ctx, o.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: objectmeta.FieldManager}, "status")
	return err
}
