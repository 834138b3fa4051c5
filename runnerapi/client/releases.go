package client

import (
	"context"
	"errors"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// PutRelease installs a chart or upgrades the release to it. It returns once that has begun or,
// with DryRun, with the changes that would be made. WaitRelease returns the outcome.
func (c *Client) PutRelease(ctx context.Context, key runnerapi.Key, spec runnerapi.ReleaseSpec, opts runnerapi.WriteOptions) (runnerapi.Release, error) {
	return c.releaseCommand(ctx, objectRequest("put-release", key).send(spec), opts)
}

// GetRelease reads the newest revision of a release.
func (c *Client) GetRelease(ctx context.Context, key runnerapi.Key) (runnerapi.Release, error) {
	var release runnerapi.Release
	_, err := c.call(ctx, objectRequest("get-release", key), &release)
	return release, err
}

// ListReleases reads the newest revision of each release of a namespace.
func (c *Client) ListReleases(ctx context.Context, namespace string) ([]runnerapi.Release, error) {
	var list runnerapi.ReleaseList
	_, err := c.call(ctx, newRequest("list-releases", namespace), &list)
	return list.Items, err
}

// ReleaseHistory reads the revisions that are kept, the newest first.
func (c *Client) ReleaseHistory(ctx context.Context, key runnerapi.Key) ([]runnerapi.Release, error) {
	var list runnerapi.ReleaseList
	_, err := c.call(ctx, objectRequest("list-release-history", key), &list)
	return list.Items, err
}

// RollbackRelease goes back to a revision, by default the one that was deployed before. It returns
// when that has begun.
func (c *Client) RollbackRelease(ctx context.Context, key runnerapi.Key, to runnerapi.ReleaseRollback, opts runnerapi.WriteOptions) (runnerapi.Release, error) {
	return c.releaseCommand(ctx, objectRequest("rollback-release", key).send(to), opts)
}

// DeleteRelease uninstalls a release. It returns once that has begun; WaitRelease returns NotFound
// when it is done. If it is repeated and the first call has already uninstalled the release, no
// more is known than that.
func (c *Client) DeleteRelease(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.Release, error) {
	release, err := c.releaseCommand(ctx, objectRequest("delete-release", key), opts)
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
