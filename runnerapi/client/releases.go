package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

func releaseURL(key runnerapi.Key) string {
	return namespaceURL(key.Namespace) + "/releases/" + url.PathEscape(key.Name)
}

// PutRelease installs a chart or upgrades the release to it. It returns once that has begun or,
// with DryRun, with the changes that would be made. WaitRelease returns the outcome.
func (c *Client) PutRelease(ctx context.Context, key runnerapi.Key, spec runnerapi.ReleaseSpec, opts runnerapi.WriteOptions) (runnerapi.Release, error) {
	return c.releaseCommand(ctx, &request{method: http.MethodPut, path: releaseURL(key), body: spec}, opts)
}

// GetRelease reads the newest revision of a release.
func (c *Client) GetRelease(ctx context.Context, key runnerapi.Key) (runnerapi.Release, error) {
	var release runnerapi.Release
	_, err := c.call(ctx, &request{method: http.MethodGet, path: releaseURL(key)}, &release)
	return release, err
}

// ListReleases reads the newest revision of each release of a namespace.
func (c *Client) ListReleases(ctx context.Context, namespace string) ([]runnerapi.Release, error) {
	var list runnerapi.ReleaseList
	_, err := c.call(ctx, &request{method: http.MethodGet, path: namespaceURL(namespace) + "/releases"}, &list)
	return list.Items, err
}

// ReleaseHistory reads the revisions that are kept, the newest first.
func (c *Client) ReleaseHistory(ctx context.Context, key runnerapi.Key) ([]runnerapi.Release, error) {
	var list runnerapi.ReleaseList
	_, err := c.call(ctx, &request{method: http.MethodGet, path: releaseURL(key) + "/history"}, &list)
	return list.Items, err
}

// RollbackRelease goes back to a revision, by default the one that was deployed before. It returns
// when that has begun.
func (c *Client) RollbackRelease(ctx context.Context, key runnerapi.Key, to runnerapi.ReleaseRollback, opts runnerapi.WriteOptions) (runnerapi.Release, error) {
	return c.releaseCommand(ctx, &request{method: http.MethodPost, path: releaseURL(key) + "/rollback", body: to}, opts)
}

// DeleteRelease uninstalls a release. It returns once that has begun; WaitRelease returns NotFound
// when it is done. If it is repeated and the first call has already uninstalled the release, no
// more is known than that.
func (c *Client) DeleteRelease(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.Release, error) {
	release, err := c.releaseCommand(ctx, &request{method: http.MethodDelete, path: releaseURL(key)}, opts)
	if err == nil && release.Name == "" {
		release = runnerapi.Release{Namespace: key.Namespace, Name: key.Name, Status: runnerapi.ReleaseUninstalled}
	}
	return release, err
}

func (c *Client) releaseCommand(ctx context.Context, r *request, opts runnerapi.WriteOptions) (runnerapi.Release, error) {
	var release runnerapi.Release
	_, err := c.call(ctx, r.write(opts), &release)
	return release, err
}

// WaitRelease waits until no command runs on a release, and reports the state about once a second.
// It outlives outages of the agent. If ctx ends first, it returns the newest known state with ctx's
// error.
func (c *Client) WaitRelease(ctx context.Context, key runnerapi.Key, report func(runnerapi.Release)) (runnerapi.Release, error) {
	var newest runnerapi.Release
	for {
		release, err := c.GetRelease(ctx, key)
		known := &runnerapi.Error{}
		switch {
		case err == nil:
			newest = release
			report(release)
			if !release.Busy() {
				return release, nil
			}
		case ctx.Err() != nil:
			return newest, ctx.Err()
		case errors.As(err, &known) && !known.Passing():
			return newest, err
		}
		if !retry.Wait(ctx, time.Second) {
			return newest, ctx.Err()
		}
	}
}
