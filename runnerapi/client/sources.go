package client

import (
	"context"
	"errors"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// sourcePause is between two looks at a source that is waited for.
const sourcePause = time.Second

// PutSource makes the agent follow a Git repository.
func (c *Client) PutSource(ctx context.Context, key runnerapi.Key, spec runnerapi.SourceSpec, opts runnerapi.WriteOptions) (runnerapi.Source, error) {
	var source runnerapi.Source
	_, err := c.call(ctx, objectRequest("put-source", key).send(spec).write(opts), &source)
	return source, err
}

// GetSource reads one source.
func (c *Client) GetSource(ctx context.Context, key runnerapi.Key) (runnerapi.Source, error) {
	var source runnerapi.Source
	_, err := c.call(ctx, objectRequest("get-source", key), &source)
	return source, err
}

// ListSources reads the sources of a namespace.
func (c *Client) ListSources(ctx context.Context, namespace string) ([]runnerapi.Source, error) {
	var list runnerapi.SourceList
	_, err := c.call(ctx, newRequest("list-sources", namespace), &list)
	return list.Items, err
}

// SyncSource makes the agent check a repository now.
func (c *Client) SyncSource(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.Source, error) {
	var source runnerapi.Source
	_, err := c.call(ctx, objectRequest("sync-source", key).write(opts), &source)
	return source, err
}

// DeleteSource stops following a repository. What it has brought stays.
func (c *Client) DeleteSource(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	return c.remove(ctx, objectRequest("delete-source", key), opts)
}

// WaitSource blocks until the source has been checked since it was last written or synced, and its
// build, if any, has ended, or until ctx ends. It returns the newest state in both cases. It
// outlives the agent's restarts.
func (c *Client) WaitSource(ctx context.Context, key runnerapi.Key, report func(runnerapi.Source)) (runnerapi.Source, error) {
	var newest runnerapi.Source
	for {
		source, err := c.GetSource(ctx, key)
		known := &runnerapi.Error{}
		switch {
		case err == nil:
			newest = source
			report(source)
			if source.Status.Phase.Settled() {
				return source, nil
			}
		case ctx.Err() == nil && (!errors.As(err, &known) || !known.Passing()):
			return newest, err
		}
		if !retry.Wait(ctx, sourcePause) {
			return newest, ctx.Err()
		}
	}
}
