package runnertest

import (
	"context"
	"fmt"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Pause implements backend.Apps.
func (b fakeApps) Pause(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	return b.edit(ctx, "Apps.Pause", key, opts, func(app *runnerapi.App) error { app.Spec.Paused = new(true); return nil })
}

// Resume implements backend.Apps.
func (b fakeApps) Resume(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	return b.edit(ctx, "Apps.Resume", key, opts, func(app *runnerapi.App) error { app.Spec.Paused = nil; return nil })
}

// Rollback implements backend.Apps.
func (b fakeApps) Rollback(ctx context.Context, key runnerapi.Key, to runnerapi.RollbackTo, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	return b.edit(ctx, "Apps.Rollback", key, opts, func(app *runnerapi.App) error {
		all := b.revisions[key]
		i := slices.IndexFunc(all, func(r revision) bool { return r.Revision.Revision == to.Revision })
		if to.Revision == 0 {
			i = len(all) - 2
		}
		if i < 0 {
			return notFound("revision", fmt.Sprintf("%d of App %s", to.Revision, key))
		}
		if opts.Admit != nil {
			if err := opts.Admit(all[i].spec); err != nil {
				return err
			}
		}
		replicas, paused := app.Spec.Replicas, app.Spec.Paused
		app.Spec = all[i].spec
		app.Spec.Replicas, app.Spec.Paused = replicas, paused
		if !opts.DryRun {
			b.revise(*app, opts, all[i].Revision.Revision)
		}
		return nil
	})
}

// revision is one with the spec to go back to.
type revision struct {
	runnerapi.Revision
	spec runnerapi.AppSpec
}

// revise notes what an App is about to become. The lock is held.
func (b *FakeBackend) revise(app runnerapi.App, opts runnerapi.WriteOptions, restores int64) {
	key := runnerapi.Key{Namespace: app.Namespace, Name: app.Name}
	r := revision{spec: app.Spec, Revision: runnerapi.Revision{
		Revision: app.Generation + 1, Image: app.Spec.Image, CreatedAt: epoch, Restores: restores,
		Runner: opts.Caller.Runner, RequestID: opts.Caller.RequestID, Changes: []runnerapi.Change{},
	}}
	if all := b.revisions[key]; len(all) > 0 && all[len(all)-1].Image != r.Image {
		r.Changes = []runnerapi.Change{{Field: "image", Kind: "changed", From: all[len(all)-1].Image, To: r.Image}}
	}
	b.revisions[key] = append(b.revisions[key], r)
}

// edit changes an App that is there.
func (b *FakeBackend) edit(ctx context.Context, verb string, key runnerapi.Key, opts runnerapi.WriteOptions, change func(*runnerapi.App) error) (runnerapi.App, error) {
	if err := b.enter(ctx, Call{verb, key, opts}); err != nil {
		return runnerapi.App{}, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	app, err := b.get(key)
	if err == nil {
		err = change(&app)
	}
	if err != nil {
		return app, err
	}
	return b.change(app, opts), nil
}

// Revisions implements backend.Apps.
func (b fakeApps) Revisions(ctx context.Context, key runnerapi.Key) ([]runnerapi.Revision, error) {
	if err := b.enter(ctx, Call{Verb: "Apps.Revisions", Key: key}); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := b.get(key); err != nil {
		return nil, err
	}
	var out []runnerapi.Revision
	for i, r := range b.revisions[key] {
		r.Current = i == len(b.revisions[key])-1
		out = append(out, r.Revision)
	}
	slices.Reverse(out)
	return out, nil
}

// Events implements backend.Apps: every change is one of the phase.
func (b fakeApps) Events(ctx context.Context, key runnerapi.Key, opts runnerapi.EventOptions, emit func(runnerapi.AppEvent) error) error {
	if err := b.enter(ctx, Call{Verb: "Apps.Events", Key: key}); err != nil {
		return err
	}
	last := opts.After
	for {
		b.mu.Lock()
		app, err := b.get(key)
		changed := b.changed
		b.mu.Unlock()
		e := runnerapi.AppEvent{
			ID: fmt.Sprintf("%d-%s", app.Generation, app.Status.Phase), Type: runnerapi.EventPhase, Time: epoch,
			Namespace: key.Namespace, Name: key.Name, Generation: app.Generation, Image: app.Spec.Image,
			Settled: app.Settled(), Status: app.Status,
		}
		gone := err != nil
		if gone {
			e.ID, e.Type = "removed", runnerapi.EventRemoved
		}
		if e.ID != last {
			last = e.ID
			if err := emit(e); err != nil {
				return err
			}
		}
		if gone || e.Settled && !opts.Follow {
			return nil //nolint:nilerr // that the App is gone was the last event
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}
