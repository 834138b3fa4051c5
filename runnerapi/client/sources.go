package client

import (
	"context"
	"strconv"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Sources are the calls about Git repositories that the agent follows.
type Sources struct{ *core }

// Set makes the agent follow a Git repository.
func (s Sources) Set(ctx context.Context, key runnerapi.Key, spec runnerapi.SourceSpec, opts runnerapi.WriteOptions) (runnerapi.Source, error) {
	return fetch[runnerapi.Source](ctx, s.core, objectRequest("put-source", key).send(spec).write(opts))
}

// Get reads one source.
func (s Sources) Get(ctx context.Context, key runnerapi.Key) (runnerapi.Source, error) {
	return fetch[runnerapi.Source](ctx, s.core, objectRequest("get-source", key))
}

// List reads the sources of a namespace.
func (s Sources) List(ctx context.Context, namespace string) ([]runnerapi.Source, error) {
	return pages(ctx, s.core, newRequest("list-sources", namespace), func(l runnerapi.SourceList) ([]runnerapi.Source, runnerapi.Page) { return l.Items, l.Page })
}

// Sync makes the agent check a repository now.
func (s Sources) Sync(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.Source, error) {
	return fetch[runnerapi.Source](ctx, s.core, objectRequest("sync-source", key).write(opts))
}

// Rollback makes the agent go back to an earlier commit and hold the source there until there is a
// new one.
func (s Sources) Rollback(ctx context.Context, key runnerapi.Key, to runnerapi.SourceRollback, opts runnerapi.WriteOptions) (runnerapi.Source, error) {
	return fetch[runnerapi.Source](ctx, s.core, objectRequest("rollback-source", key).send(to).write(opts))
}

// ApprovePromotion allows the promotion of a commit that waits for it.
func (s Sources) ApprovePromotion(ctx context.Context, key runnerapi.Key, approval runnerapi.CommitApproval, opts runnerapi.WriteOptions) (runnerapi.Source, error) {
	return fetch[runnerapi.Source](ctx, s.core, objectRequest("approve-promotion", key).send(approval).write(opts))
}

// Previews reads the open pull requests of a source's repository, and their previews.
func (s Sources) Previews(ctx context.Context, key runnerapi.Key) (runnerapi.SourcePreviewList, error) {
	return fetch[runnerapi.SourcePreviewList](ctx, s.core, objectRequest("list-source-previews", key))
}

// ApprovePreview allows a preview of a fork's commit.
func (s Sources) ApprovePreview(ctx context.Context, key runnerapi.Key, number int64, approval runnerapi.CommitApproval, opts runnerapi.WriteOptions) (runnerapi.Source, error) {
	r := newRequest("approve-preview", key.Namespace, key.Name, strconv.FormatInt(number, 10))
	return fetch[runnerapi.Source](ctx, s.core, r.send(approval).write(opts))
}

// Delete stops following a repository. What it has brought stays.
func (s Sources) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	return s.remove(ctx, objectRequest("delete-source", key), opts)
}

// Wait blocks until the source has been checked since it was last written or synced, and its
// build, if any, has ended, or until ctx ends. It returns the newest state in both cases. It
// outlives the agent's restarts.
func (s Sources) Wait(ctx context.Context, key runnerapi.Key, report func(runnerapi.Source)) (runnerapi.Source, error) {
	return poll(ctx, func() (runnerapi.Source, error) { return s.Get(ctx, key) }, report,
		func(s runnerapi.Source) bool { return s.Status.Phase.Settled() })
}
