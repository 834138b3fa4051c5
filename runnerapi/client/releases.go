package client

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Releases are the calls about releases of Helm charts.
type Releases struct{ *core }

// Deploy installs a chart or upgrades the release to it. It returns once that has begun or,
// with DryRun, with the changes that would be made. Wait returns the outcome.
func (r Releases) Deploy(ctx context.Context, key runnerapi.Key, spec runnerapi.ReleaseSpec, opts runnerapi.WriteOptions) (runnerapi.Release, error) {
	return r.command(ctx, objectRequest("put-release", key).send(spec), opts)
}

// Get reads the newest revision of a release.
func (r Releases) Get(ctx context.Context, key runnerapi.Key) (runnerapi.Release, error) {
	return fetch[runnerapi.Release](ctx, r.core, objectRequest("get-release", key))
}

// List reads the newest revision of each release of a namespace.
func (r Releases) List(ctx context.Context, namespace string) ([]runnerapi.Release, error) {
	return pages(ctx, r.core, newRequest("list-releases", namespace), func(l runnerapi.ReleaseList) ([]runnerapi.Release, runnerapi.Page) { return l.Items, l.Page })
}

// History reads the revisions that are kept, the newest first.
func (r Releases) History(ctx context.Context, key runnerapi.Key) ([]runnerapi.Release, error) {
	list, err := fetch[runnerapi.ReleaseList](ctx, r.core, objectRequest("list-release-history", key))
	return list.Items, err
}

// Rollback goes back to a revision, by default the one that was deployed before. It returns
// when that has begun.
func (r Releases) Rollback(ctx context.Context, key runnerapi.Key, to runnerapi.ReleaseRollback, opts runnerapi.WriteOptions) (runnerapi.Release, error) {
	return r.command(ctx, objectRequest("rollback-release", key).send(to), opts)
}

// Delete uninstalls a release. It returns once that has begun; Wait returns NotFound
// when it is done. If it is repeated and the first call has already uninstalled the release, no
// more is known than that.
func (r Releases) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.Release, error) {
	release, err := r.command(ctx, objectRequest("delete-release", key), opts)
	if err == nil && release.Name == "" {
		release = runnerapi.Release{Namespace: key.Namespace, Name: key.Name, Status: runnerapi.ReleaseUninstalled}
	}
	return release, err
}

func (r Releases) command(ctx context.Context, req *request, opts runnerapi.WriteOptions) (runnerapi.Release, error) {
	return fetch[runnerapi.Release](ctx, r.core, req.write(opts))
}

// Wait waits until no command runs on a release, and reports the state about every other second.
// It outlives outages of the agent. If ctx ends first, it returns the newest known state with ctx's
// error.
func (r Releases) Wait(ctx context.Context, key runnerapi.Key, report func(runnerapi.Release)) (runnerapi.Release, error) {
	return poll(ctx, func() (runnerapi.Release, error) { return r.Get(ctx, key) }, report,
		func(r runnerapi.Release) bool { return !r.Busy() })
}
