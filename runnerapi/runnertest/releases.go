package runnertest

import (
	"context"
	"slices"
	"strings"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// The fake's releases. One with a timeout of 1s fails, or is rolled back if it asks for that. Any
// other is deployed by the next request for it. One with "sticky" in its name is gone only after a
// second delete.
const failingTimeout = "1s"

func (b *FakeBackend) release(ctx context.Context, verb string, key runnerapi.Key, opts runnerapi.ReleaseOptions) ([]runnerapi.Release, error) {
	if err := b.enter(ctx, Call{verb, key, opts.WriteOptions}); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.checkNamespace(key.Namespace); err != nil {
		return nil, err
	}
	history := b.releases[key]
	if len(history) == 0 && verb != "Releases.Deploy" {
		return nil, notFound("release", key)
	}
	return slices.Clone(history), nil
}

// Deploy implements backend.Releases.
func (b fakeReleases) Deploy(ctx context.Context, key runnerapi.Key, spec runnerapi.ReleaseSpec, opts runnerapi.ReleaseOptions) (runnerapi.Release, error) {
	history, err := b.release(ctx, "Releases.Deploy", key, opts)
	if err != nil {
		return runnerapi.Release{}, err
	}
	revision := 0
	if len(history) > 0 {
		revision = history[0].Revision
	}
	if err := runnerapi.Unchanged("release "+key.String(), "revision", opts.Revision, revision); err != nil {
		return runnerapi.Release{}, err
	}
	object := runnerapi.ObjectIntent{Location: "Service guide", Kind: "Service"}
	chart := &runnerapi.ChartIntent{Name: "guide", Version: "1.0.0"}
	if opts.Admit != nil {
		if err := opts.Admit(chart, []runnerapi.ObjectIntent{object}); err != nil {
			return runnerapi.Release{}, err
		}
	}
	r := runnerapi.Release{
		Namespace: key.Namespace, Name: key.Name, Revision: len(history) + 1, Status: runnerapi.ReleaseDeployed, Description: "Install complete",
		Chart: runnerapi.ReleaseChart{Name: "guide", Version: "1.0.0"}, UpdatedAt: epoch, Managed: true,
		Objects: []runnerapi.ReleaseObject{{APIVersion: "v1", Kind: "Service", Name: key.Name}},
	}
	if opts.DryRun {
		r.Objects[0].Change = "create"
		return r, nil
	}
	if spec.Timeout == failingTimeout {
		r.Status, r.Description = runnerapi.ReleaseFailed, "Service guide did not become ready within 1s"
		if spec.RollbackOnFailure {
			r.Undone = &runnerapi.ReleaseUndone{Revision: r.Revision, Description: r.Description}
			r.Status, r.Description, r.Revision = runnerapi.ReleaseDeployed, "Rollback to 1", r.Revision+1
		}
	}
	return b.keepRelease(key, r, history, opts), nil
}

func (b *FakeBackend) keepRelease(key runnerapi.Key, r runnerapi.Release, history []runnerapi.Release, opts runnerapi.ReleaseOptions) runnerapi.Release {
	for i := range history {
		if history[i].Status == runnerapi.ReleaseDeployed {
			history[i].Status = runnerapi.ReleaseSuperseded
		}
	}
	b.mu.Lock()
	b.releases[key] = append([]runnerapi.Release{r}, history...)
	b.mu.Unlock()
	r.Status = runnerapi.ReleasePendingUpgrade
	r.Operation = &runnerapi.ReleaseOperation{Command: "put-release", Runner: opts.Caller.Runner, StartedAt: epoch, Progress: "waiting for Service guide"}
	return r
}

// Get implements backend.Releases.
func (b fakeReleases) Get(ctx context.Context, key runnerapi.Key) (runnerapi.Release, error) {
	history, err := b.release(ctx, "Releases.Get", key, runnerapi.ReleaseOptions{})
	if err != nil {
		return runnerapi.Release{}, err
	}
	return history[0], nil
}

// Wait implements backend.Releases.
func (b fakeReleases) Wait(ctx context.Context, key runnerapi.Key) (runnerapi.Release, error) {
	return b.Releases().Get(ctx, key)
}

// History implements backend.Releases.
func (b fakeReleases) History(ctx context.Context, key runnerapi.Key) ([]runnerapi.Release, error) {
	return b.release(ctx, "Releases.History", key, runnerapi.ReleaseOptions{})
}

// List implements backend.Releases.
func (b fakeReleases) List(ctx context.Context, namespace string) ([]runnerapi.Release, error) {
	if err := b.enter(ctx, Call{Verb: "Releases.List", Key: runnerapi.Key{Namespace: namespace}}); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.checkNamespace(namespace); err != nil {
		return nil, err
	}
	var list []runnerapi.Release
	for key, history := range b.releases {
		if key.Namespace == namespace {
			list = append(list, history[0])
		}
	}
	return list, nil
}

// Rollback implements backend.Releases.
func (b fakeReleases) Rollback(ctx context.Context, key runnerapi.Key, to runnerapi.ReleaseRollback, opts runnerapi.ReleaseOptions) (runnerapi.Release, error) {
	history, err := b.release(ctx, "Releases.Rollback", key, opts)
	if err != nil {
		return runnerapi.Release{}, err
	}
	at := slices.IndexFunc(history, func(r runnerapi.Release) bool { return r.Revision == to.Revision })
	if at < 0 {
		return runnerapi.Release{}, notFound("revision of release", key)
	}
	r := history[at]
	r.Revision, r.Status = history[0].Revision+1, runnerapi.ReleaseDeployed
	if opts.DryRun {
		return r, nil
	}
	return b.keepRelease(key, r, history, opts), nil
}

// Delete implements backend.Releases.
func (b fakeReleases) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.ReleaseOptions) (runnerapi.Release, error) {
	history, err := b.release(ctx, "Releases.Delete", key, opts)
	if err != nil {
		return runnerapi.Release{}, err
	}
	r := history[0]
	switch {
	case opts.DryRun:
	case strings.Contains(key.Name, "sticky") && r.Status != runnerapi.ReleaseFailed:
		const waits = "pod sticky-0 to stop"
		r.Status, r.Description = runnerapi.ReleaseFailed, "Deployment sticky did not go within 5m0s: waits for "+waits
		r = b.keepRelease(key, r, nil, opts)
		r.Status = runnerapi.ReleaseUninstalling
		r.Operation.Command, r.Operation.Progress = "delete-release", "Deployment sticky is being deleted; it waits for "+waits
	default:
		b.mu.Lock()
		delete(b.releases, key)
		b.mu.Unlock()
		r.Status = runnerapi.ReleaseUninstalled
	}
	return r, nil
}
