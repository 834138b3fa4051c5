package source

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"

	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/source/git"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

const (
	mergePatch = types.MergePatchType
	// turnedOn is how often a leader checks whether sources were enabled.
	turnedOn = 10 * time.Minute
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
	all.Go(func() error {
		defer k.work.ShutDown()
		for k.awaken(ctx) {
			if k.Leads() && k.there(ctx) {
				k.follow(ctx)
			}
		}
		return nil
	})
	return all.Wait()
}

// awaken waits for a reason to look; it returns false once ctx has ended.
func (k *Keeper) awaken(ctx context.Context) bool {
	timer := time.NewTimer(turnedOn)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-k.wake:
	case <-timer.C:
	}
	return true
}

// there reports whether the cluster has sources and lets the agent see them.
func (k *Keeper) there(ctx context.Context) bool {
	for _, r := range k.everywhere() {
		if _, err := r.List(ctx, metav1.ListOptions{Limit: 1}); err == nil {
			return true
		} else if !apierrors.IsForbidden(err) && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			k.Log.Warn().Err(err).Msg("Git sources cannot be listed; trying again")
			k.Wake()
		}
	}
	return false
}

// everywhere returns where sources may be.
func (k *Keeper) everywhere() []dynamic.ResourceInterface {
	api, err := k.client()
	if err != nil {
		k.Log.Error().Err(err).Msg("Git sources are not followed: no client for the Kubernetes API")
		return nil
	}
	if len(k.Namespaces) == 0 {
		return []dynamic.ResourceInterface{api.objects.Resource(resource)}
	}
	var out []dynamic.ResourceInterface
	for _, namespace := range k.Namespaces {
		out = append(out, api.objects.Resource(resource).Namespace(namespace))
	}
	return out
}

// follow watches sources until this replica no longer leads.
func (k *Keeper) follow(ctx context.Context) {
	k.Log.Debug().Msg("following Git sources")
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if k.Heard != nil {
		k.Heard(ctx)
	}
	all, ctx := errgroup.WithContext(ctx)
	where := k.everywhere()
	stores := make([]cache.Store, 0, len(where))
	for _, r := range where {
		store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
			ListerWatcher: listWatch(r), ObjectType: &unstructured.Unstructured{}, Handler: k.handler(),
			Transform: withoutFields,
		})
		stores = append(stores, store)
		all.Go(func() error {
			informer.RunWithContext(ctx)
			return nil
		})
	}
	k.keepStores(stores)
	defer k.keepStores(nil)
	all.Go(func() error {
		k.sweep(ctx)
		return nil
	})
	all.Go(func() error {
		defer cancel()
		tick := time.NewTicker(turnedOn)
		defer tick.Stop()
		for k.Leads() {
			select {
			case <-ctx.Done():
				return nil
			case <-k.wake:
			case <-tick.C:
			}
		}
		k.Wake() // it may lead again by now
		return nil
	})
	_ = all.Wait() // none of them fails
}

func (k *Keeper) keepStores(stores []cache.Store) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stores = stores
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
// Changes of its status are our own.
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
	}
	return cache.ResourceEventHandlerFuncs{AddFunc: add, DeleteFunc: remove, UpdateFunc: func(before, now any) {
		b, ok1 := before.(*unstructured.Unstructured)
		n, ok2 := now.(*unstructured.Unstructured)
		if !ok1 || !ok2 || b.GetGeneration() != n.GetGeneration() || asked(b) != asked(n) {
			add(now)
		}
	}}
}

// asked returns who put a source, by which call, and the last call that requested a look.
func asked(u *unstructured.Unstructured) [3]string {
	a := u.GetAnnotations()
	return [3]string{a[managed.ChangedBy], a[managed.RequestID], a[managed.Sync]}
}

// drain handles sources until the queue is shut down.
func (k *Keeper) drain(ctx context.Context) {
	for {
		key, stopped := k.work.Get()
		if stopped {
			return
		}
		if ctx.Err() == nil && k.Leads() {
			if next := k.look(ctx, key); next > 0 {
				k.work.AddAfter(key, next)
			}
		}
		k.work.Done(key)
	}
}

// look updates one source, and returns when to look again; 0 for not before it changes.
func (k *Keeper) look(ctx context.Context, key runnerapi.Key) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	sources, err := k.on(ctx, key.Namespace)
	if err != nil {
		k.Log.Warn().Err(err).Stringer("source", key).Msg("the source is not looked at")
		return turnedOn
	}
	u, err := sources.Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		k.gone(ctx, key)
		return 0
	}
	var o *object
	if err == nil {
		o, err = read(u)
	}
	if err != nil {
		k.Log.Warn().Err(err).Stringer("source", key).Msg("the source cannot be read; trying again")
		return soon
	}
	status, next := k.judge(ctx, o)
	if ctx.Err() != nil {
		return soon
	}
	if err := write(ctx, sources, o, status); err != nil && !apierrors.IsNotFound(err) {
		k.Log.Warn().Err(err).Stringer("source", key).Msg("the source's status cannot be written; trying again")
		return soon
	}
	return next
}

// judge updates a source and returns the result.
func (k *Keeper) judge(ctx context.Context, o *object) (runnerapi.SourceStatus, time.Duration) {
	s := o.Status
	s.ObservedGeneration, s.ObservedSync = o.Generation, o.sync()
	if s.Suspension = k.suspension(o); s.Suspension != nil {
		return k.suspend(ctx, o, s), 0
	}
	if o.Spec.Suspend {
		s.Phase = runnerapi.SourceSuspended
		k.condition(&s, "Unknown", "Suspended", "")
		return s, 0
	}
	every, err := o.Spec.Every()
	if err != nil { // not written by this agent
		every = runnerapi.DefaultSourceInterval
	}
	if left := k.notBefore(o, every); left > 0 { // only the cluster is read, not the repository
		return k.withHealth(ctx, o, s, left)
	}
	out, err := k.attempt(ctx, o, false)
	k.tidy(ctx, o, out.build)
	s.Build = out.build
	if err == nil && out.building() { // the repository is not contacted meanwhile
		s.Attempted, s.Phase = out.commit, runnerapi.SourceBuilding
		k.condition(&s, "Unknown", "Building", "commit "+out.commit+" as build "+out.build.Key().String())
		return s, buildPause
	}
	now := k.now().UTC().Format(time.RFC3339)
	s.CheckedAt = now
	if out.commit != "" {
		s.Attempted = out.commit
	}
	if err != nil {
		return k.failed(o, s, out, err), min(every, k.again(err, every))
	}
	if out.new {
		s.AppliedAt = now
		k.note(o, out, nil)
	}
	s.Error, s.Commit, s.Revision, s.Objects = nil, out.commit, out.revision, out.objects
	return k.withHealth(ctx, o, s, spread(every))
}

func (k *Keeper) failed(o *object, s runnerapi.SourceStatus, out brought, err error) runnerapi.SourceStatus {
	e := asSourceError(err)
	if e.Code == string(problem.Internal) {
		k.Log.Error().Err(err).Stringer("source", o.key()).Msg("a source failed for a reason that is not told")
	}
	e.Commit, e.Since = out.commit, s.CheckedAt
	if before := o.Status.Error; before != nil && before.Code == e.Code && before.Message == e.Message && before.Commit == e.Commit {
		e.Since = before.Since
	} else {
		k.note(o, out, e)
	}
	s.Phase, s.Error, s.Health = runnerapi.SourceFailed, e, nil
	k.condition(&s, "False", "Failed", e.Message)
	return s
}

// again returns when to retry after an error.
func (k *Keeper) again(err error, every time.Duration) time.Duration {
	var g *git.Error
	p := &problem.Error{}
	switch {
	case errors.As(err, &g) && (g.Reason == git.Unreachable || g.Reason == git.Timeout), errors.As(err, &p) && p.Passing():
		return spread(soon)
	}
	return spread(every)
}

func spread(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 - jitter + 2*jitter*rand.Float64())) //nolint:gosec // no secret: it keeps agents apart
}

func (k *Keeper) condition(s *runnerapi.SourceStatus, status, reason, message string) {
	c := runnerapi.SourceCondition{Type: "Ready", Status: status, Reason: reason, Message: message, LastTransitionTime: k.now().UTC().Format(time.RFC3339)}
	for _, before := range s.Conditions {
		if before.Type == c.Type && before.Status == c.Status {
			c.LastTransitionTime = before.LastTransitionTime
		}
	}
	s.Conditions = []runnerapi.SourceCondition{c}
}

// write writes the status into the cluster.
func write(ctx context.Context, sources dynamic.ResourceInterface, o *object, s runnerapi.SourceStatus) error {
	// As a whole, so that removed fields disappear.
	patch, err := json.Marshal([]map[string]any{{"op": "add", "path": "/status", "value": s}})
	if err != nil {
		return err
	}
	_, err = sources.Patch(ctx, o.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: managed.FieldManager}, "status")
	return err
}

// note adds a record of what was brought, or why not, to the audit log.
func (k *Keeper) note(o *object, out brought, e *runnerapi.SourceError) {
	r := k.record(o, syncSource, o.key(), map[string]string{"commit": out.commit, "url": o.Spec.URL})
	if e != nil {
		r.Outcome, r.Status, r.Code, r.Message = runnerapi.AuditFailed, http.StatusUnprocessableEntity, runnerapi.Code(e.Code), e.Message
	}
	if k.Audit != nil {
		k.Audit(r)
	}
}

// noteBuild adds a record of a build that was started.
func (k *Keeper) noteBuild(o *object, b runnerapi.Build) {
	if k.Audit != nil {
		k.Audit(k.record(o, putBuild, runnerapi.Key{Namespace: b.Namespace, Name: b.Name},
			map[string]string{"commit": b.Spec.Git.Ref.Commit, "url": b.Spec.Git.URL, "image": b.Spec.Image}))
	}
}

func (k *Keeper) record(o *object, command string, key runnerapi.Key, about map[string]string) runnerapi.AuditRecord {
	arguments, err := json.Marshal(about)
	if err != nil {
		arguments = nil // of texts: impossible
	}
	return runnerapi.AuditRecord{
		Time: k.now().UTC(), Runner: o.caller().Runner, RequestID: o.caller().RequestID, Command: command,
		Namespace: key.Namespace, Name: key.Name, Arguments: arguments, Outcome: runnerapi.AuditDone, Status: http.StatusOK,
	}
}
