package client

import (
	"context"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// buildPause is between two looks at a build that is waited for.
const buildPause = time.Second

// PutBuild starts a build, unless this very run of this very spec was started before.
func (c *Client) PutBuild(ctx context.Context, key runnerapi.Key, spec runnerapi.BuildSpec, opts runnerapi.WriteOptions) (runnerapi.Build, error) {
	var build runnerapi.Build
	_, err := c.call(ctx, objectRequest("put-build", key).send(spec).write(opts), &build)
	return build, err
}

// GetBuild reads the newest run of a build, and the runs before in short.
func (c *Client) GetBuild(ctx context.Context, key runnerapi.Key) (runnerapi.Build, error) {
	var build runnerapi.Build
	_, err := c.call(ctx, objectRequest("get-build", key), &build)
	return build, err
}

// WaitBuild waits until the newest run has ended, and reports each look at it.
func (c *Client) WaitBuild(ctx context.Context, key runnerapi.Key, report func(runnerapi.Build)) (runnerapi.Build, error) {
	for {
		build, err := c.GetBuild(ctx, key)
		if err != nil {
			return build, err
		}
		report(build)
		if build.Status.Phase.Ended() {
			return build, nil
		}
		if !retry.Wait(ctx, buildPause) {
			return build, ctx.Err()
		}
	}
}

// ListBuilds reads the newest run of each build of a namespace.
func (c *Client) ListBuilds(ctx context.Context, namespace string) ([]runnerapi.Build, error) {
	var list runnerapi.BuildList
	_, err := c.call(ctx, newRequest("list-builds", namespace), &list)
	return list.Items, err
}

// DeleteBuild ends the run that is under way and removes all runs.
func (c *Client) DeleteBuild(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	return c.remove(ctx, objectRequest("delete-build", key), opts)
}

// BuildLogs calls emit for each line of the newest run until the end of the log or, with Follow,
// until the run has ended. It resumes where the log broke off, as Logs does.
func (c *Client) BuildLogs(ctx context.Context, key runnerapi.Key, opts runnerapi.LogOptions, emit func(runnerapi.LogLine) error) error {
	return c.logs(ctx, objectRequest("build-logs", key), opts, emit)
}
