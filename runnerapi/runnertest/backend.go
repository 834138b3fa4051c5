// Package runnertest provides an agent for tests of its callers: the real Runner API server over
// real mutual TLS on the loopback interface. Its backend is in memory and only pretends to have a
// cluster. Do not test with it what an agent does: that needs a real cluster.
package runnertest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// FakeBackend keeps everything in memory. An App becomes healthy when a call waits for it, unless
// its image name says otherwise. With "missing" in the name it fails, with "slow" it progresses
// until Finish, and with "sticky" it is gone only after a second delete.
type FakeBackend struct {
	inside  atomic.Int32 // commands and connections
	machine bool         // tar and test run on this machine

	mu         sync.Mutex
	changed    chan struct{} // closed and replaced at each change
	apps       map[runnerapi.Key]runnerapi.App
	secrets    map[runnerapi.Key]runnerapi.SecretSpec
	configMaps map[runnerapi.Key]runnerapi.ConfigMapSpec
	namespaces map[string]runnerapi.Namespace
	used       map[string]bool // Idempotency-Keys of restarts
	revisions  map[runnerapi.Key][]revision
	journal    *fakeJournal
	lines      []runnerapi.LogLine
	logEnd     error
	calls      []Call
	following  int
	node       nodeState
	sets       map[runnerapi.Key]runnerapi.ManifestSet
	releases   map[runnerapi.Key][]runnerapi.Release // the newest first
	builds     map[runnerapi.Key]runnerapi.BuildSpec
	sources    map[runnerapi.Key]runnerapi.Source

	// Intercept, if set, is called before each call, which returns its error. It may block until
	// ctx ends. Set it before the first call.
	Intercept func(ctx context.Context, call Call) error
	// DrainFails, if set, aborts a drain after its first pod.
	DrainFails error
}

// Call is one call that reached the backend.
type Call struct {
	Verb string // handle and method, such as Apps.Deploy
	Key  runnerapi.Key
	runnerapi.WriteOptions
}

// NewBackend returns a backend with the namespace "production".
func NewBackend() *FakeBackend {
	b := &FakeBackend{
		changed: make(chan struct{}),
		apps:    map[runnerapi.Key]runnerapi.App{}, secrets: map[runnerapi.Key]runnerapi.SecretSpec{},
		configMaps: map[runnerapi.Key]runnerapi.ConfigMapSpec{},
		namespaces: map[string]runnerapi.Namespace{}, used: map[string]bool{},
		revisions: map[runnerapi.Key][]revision{}, journal: &fakeJournal{kept: map[string]kept{}},
		releases: map[runnerapi.Key][]runnerapi.Release{},
	}
	b.namespaces["production"] = runnerapi.Namespace{Name: "production", Phase: "Active", CreatedAt: epoch}
	return b
}

// epoch is when everything in the fake was created.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// Calls returns the calls that have reached the backend so far.
func (b *FakeBackend) Calls() []Call {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.calls)
}

func (b *FakeBackend) enter(ctx context.Context, call Call) error {
	b.mu.Lock()
	b.calls = append(b.calls, call)
	b.mu.Unlock()
	if b.Intercept != nil {
		return b.Intercept(ctx, call)
	}
	return nil
}

// notify wakes all waiting calls. The lock is held.
func (b *FakeBackend) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}

func notFound(kind string, name any) error {
	e := &runnerapi.Error{Status: 404, Title: "Not Found", Code: runnerapi.CodeNotFound}
	e.Detail, e.Fix = fmt.Sprintf("there is no %s %s", kind, name), "look at what there is with a list"
	return e
}

func (b *FakeBackend) checkNamespace(name string) error {
	if _, ok := b.namespaces[name]; !ok {
		return runnerapi.NotManaged(name)
	}
	return nil
}

// Deploy implements backend.Apps.
func (b fakeApps) Deploy(ctx context.Context, key runnerapi.Key, spec runnerapi.AppSpec, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	if err := b.enter(ctx, Call{"Apps.Deploy", key, opts}); err != nil {
		return runnerapi.App{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.checkNamespace(key.Namespace); err != nil {
		return runnerapi.App{}, err
	}
	app, ok := b.apps[key]
	if err := runnerapi.Unchanged("App "+key.String(), "generation", opts.Generation, app.Generation); err != nil {
		return runnerapi.App{}, err
	}
	if !ok {
		app = runnerapi.App{Namespace: key.Namespace, Name: key.Name, CreatedAt: epoch}
	}
	app.Spec = spec.KeepUnnamed(app.Spec)
	if opts.Admit != nil && (app.Spec.Replicas != spec.Replicas || app.Spec.Autoscaling != spec.Autoscaling) {
		if err := opts.Admit(app.Spec); err != nil {
			return runnerapi.App{}, err
		}
	}
	if !opts.DryRun {
		b.revise(app, opts, 0)
	}
	return b.change(app, opts), nil
}

// change starts a new generation of an App. The lock is held.
func (b *FakeBackend) change(app runnerapi.App, opts runnerapi.WriteOptions) runnerapi.App {
	app.Generation++
	app.Status.Phase = runnerapi.PhaseProgressing
	app.Status.Diagnosis = nil
	key := runnerapi.Key{Namespace: app.Namespace, Name: app.Name}
	if runs, ok := b.apps[key]; ok && opts.DryRun { // as the agent: the status is of what runs
		runs = settle(runs)
		app.Status.URLs, app.Status.PublicURLs = runs.Status.URLs, runs.Status.PublicURLs
	}
	if !opts.DryRun {
		b.apps[key] = app
		b.notify()
	}
	return app
}

// Get implements backend.Apps.
func (b fakeApps) Get(ctx context.Context, key runnerapi.Key) (runnerapi.App, error) {
	return b.read(ctx, "Apps.Get", key)
}

func (b *FakeBackend) read(ctx context.Context, verb string, key runnerapi.Key) (runnerapi.App, error) {
	if err := b.enter(ctx, Call{Verb: verb, Key: key}); err != nil {
		return runnerapi.App{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.get(key)
}

func (b *FakeBackend) get(key runnerapi.Key) (runnerapi.App, error) {
	app, ok := b.apps[key]
	if !ok {
		return app, notFound("App", key)
	}
	return app, nil
}

// List implements backend.Apps.
func (b fakeApps) List(ctx context.Context, namespace string) ([]runnerapi.App, error) {
	if err := b.enter(ctx, Call{Verb: "Apps.List", Key: runnerapi.Key{Namespace: namespace}}); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var items []runnerapi.App
	for key, app := range b.apps {
		if namespace == "" || key.Namespace == namespace {
			items = append(items, app)
		}
	}
	slices.SortFunc(items, func(a, b runnerapi.App) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return items, nil
}

// Delete implements backend.Apps.
func (b fakeApps) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	if err := b.enter(ctx, Call{"Apps.Delete", key, opts}); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	app, err := b.get(key)
	if err != nil {
		return err
	}
	if strings.Contains(app.Spec.Image, "sticky") && !opts.DryRun && app.Status.Phase != runnerapi.PhaseDeleting {
		app.Status.Phase, app.Status.WaitingFor = runnerapi.PhaseDeleting, "pod "+key.Name+"-0 to stop"
		b.apps[key] = app
		b.notify()
		return nil
	}
	if !opts.DryRun {
		delete(b.apps, key)
		delete(b.revisions, key)
		b.notify()
	}
	return nil
}

// Scale implements backend.Apps.
func (b fakeApps) Scale(ctx context.Context, key runnerapi.Key, scale runnerapi.Scale, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	if err := b.enter(ctx, Call{"Apps.Scale", key, opts}); err != nil {
		return runnerapi.App{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	app, err := b.get(key)
	if err != nil {
		return app, err
	}
	switch bounds := app.Spec.Autoscaling; {
	case scale.Replicas != nil:
		app.Spec.Replicas, app.Spec.Autoscaling = scale.Replicas, nil
	case bounds == nil && scale.Min != nil && scale.Max != nil:
		app.Spec.Replicas = scale.Min
		app.Spec.Autoscaling = &runnerapi.Autoscaling{Min: *scale.Min, Max: *scale.Max, CPUPercent: orZero(scale.CPUPercent)}
	case bounds != nil:
		changed := *bounds
		set(&changed.Min, scale.Min)
		set(&changed.Max, scale.Max)
		set(&changed.CPUPercent, scale.CPUPercent)
		app.Spec.Autoscaling = &changed
	}
	return b.change(app, opts), nil
}

func set(into, n *int32) {
	if n != nil {
		*into = *n
	}
}

func orZero(n *int32) int32 {
	var out int32
	set(&out, n)
	return out
}

// Restart implements backend.Apps.
func (b fakeApps) Restart(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	if err := b.enter(ctx, Call{"Apps.Restart", key, opts}); err != nil {
		return runnerapi.App{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	app, err := b.get(key)
	if err != nil || opts.IdempotencyKey != "" && b.used[opts.IdempotencyKey] {
		return app, err
	}
	b.used[opts.IdempotencyKey] = !opts.DryRun
	return b.change(app, opts), nil
}

// Wait implements backend.Apps.
func (b fakeApps) Wait(ctx context.Context, key runnerapi.Key, generation int64) (runnerapi.App, error) {
	if err := b.enter(ctx, Call{Verb: "Apps.Wait", Key: key}); err != nil {
		return runnerapi.App{}, err
	}
	for {
		b.mu.Lock()
		app, err := b.get(key)
		if err == nil && !strings.Contains(app.Spec.Image, "slow") {
			app = settle(app)
			b.apps[key] = app
		}
		changed := b.changed
		b.mu.Unlock()
		if err != nil || app.Settled() && app.Generation >= generation {
			return app, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return app, nil
		}
	}
}

// Finish completes an App with a slow image.
func (b *FakeBackend) Finish(key runnerapi.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.apps[key] = settle(b.apps[key])
	b.notify()
}

// jobResult lets a Pipeline's job succeed, or fail if its image is missing. It does not run a job
// after a failed one.
func jobResult(app runnerapi.App, j runnerapi.PipelineJob) runnerapi.JobResult {
	last := len(app.Status.Jobs) - 1
	switch {
	case last >= 0 && app.Status.Jobs[last].State != runnerapi.JobSucceeded:
		return runnerapi.JobResult{Name: j.Name, State: runnerapi.JobNotRun}
	case strings.Contains(j.Image, "missing"):
		return runnerapi.JobResult{Name: j.Name, State: runnerapi.JobFailed, StartedAt: &epoch, FinishedAt: &epoch, Tries: 1}
	}
	return runnerapi.JobResult{Name: j.Name, State: runnerapi.JobSucceeded, StartedAt: &epoch, FinishedAt: &epoch, Tries: 1}
}

func settle(app runnerapi.App) runnerapi.App {
	replicas := int32(1)
	if app.Spec.Replicas != nil {
		replicas = *app.Spec.Replicas
	}
	app.Status = runnerapi.AppStatus{
		Phase: runnerapi.PhaseHealthy, ObservedGeneration: app.Generation,
		Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, DesiredReplicas: replicas,
		LastTransition: &epoch,
	}
	if app.Spec.Type.Runs() {
		app.Status.Replicas, app.Status.UpdatedReplicas, app.Status.ReadyReplicas, app.Status.DesiredReplicas = 0, 0, 0, 0
		app.Status.Runs = []runnerapi.Run{{Name: app.Name, Outcome: runnerapi.RunSucceeded, StartedAt: epoch, FinishedAt: &epoch}}
	}
	for _, j := range app.Spec.Jobs {
		app.Status.Jobs = append(app.Status.Jobs, jobResult(app, j))
	}
	if in := app.Spec.Ingress; in != nil {
		switch {
		case in.Class == "missing":
			app.Status.Conditions = []runnerapi.Condition{*runnerapi.ConditionIngressReady.False(runnerapi.ReasonNoIngressClass,
				`the Ingress names ingress class "missing", which the cluster does not have`, "set ingress.class to one that the cluster has: nginx")}
		case in.Public:
			app.Status.PublicURLs = []string{fmt.Sprintf("https://%s-%s-shop.apps.example.com/", app.Name, app.Namespace)}
		default:
			for _, h := range in.Hosts {
				switch {
				case strings.HasPrefix(h.Host, unproven):
				case h.Passthrough:
					app.Status.PublicURLs = append(app.Status.PublicURLs, "tls://"+h.Host+":443")
				default:
					app.Status.PublicURLs = append(app.Status.PublicURLs, "http://"+h.Host+"/")
				}
			}
		}
	}
	if len(app.Spec.Ports) > 0 {
		app.Status.URLs = []string{fmt.Sprintf("http://%s.%s.svc:%d", app.Name, app.Namespace, app.Spec.Ports[0].ServicePort())}
	}
	if strings.Contains(app.Spec.Image, "missing") {
		app.Status.Phase, app.Status.ReadyReplicas = runnerapi.PhaseFailed, 0
		for i := range app.Status.Runs { // these wait for the image
			app.Status.Runs[i].Outcome, app.Status.Runs[i].FinishedAt = runnerapi.RunRunning, nil
		}
		app.Status.Diagnosis = &runnerapi.Diagnosis{
			Cause: runnerapi.CauseImageNotFound, Message: "the image " + app.Spec.Image + " does not exist",
			Fix: "check the image's name and tag", Object: "Pod/" + app.Name + "-1",
			LastLines: []string{"first", "last"},
		}
	}
	return app
}
