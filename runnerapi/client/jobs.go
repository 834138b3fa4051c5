package client

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Jobs are the calls about what runs once, to its end.
type Jobs struct{ *core }

// Run runs a Job once. It does not wait for the outcome: see Wait.
func (j Jobs) Run(ctx context.Context, key runnerapi.Key, spec runnerapi.JobSpec, opts runnerapi.WriteOptions) (runnerapi.Job, error) {
	return fetch[runnerapi.Job](ctx, j.core, objectRequest("put-job", key).send(spec).write(opts))
}

// Get reads one Job.
func (j Jobs) Get(ctx context.Context, key runnerapi.Key) (runnerapi.Job, error) {
	return fetch[runnerapi.Job](ctx, j.core, objectRequest("get-job", key))
}

// List reads the Jobs of a namespace.
func (j Jobs) List(ctx context.Context, namespace string) ([]runnerapi.Job, error) {
	return pages(ctx, j.core, newRequest("list-jobs", namespace), func(l runnerapi.JobList) ([]runnerapi.Job, runnerapi.Page) { return l.Items, l.Page })
}

// Wait blocks until the Job of at least this generation has ended or cannot go on, or ctx ends.
// It returns the newest known state in all cases. Every other second it reports the state, or why
// the agent cannot be reached. It outlives the agent's restarts and outages.
func (j Jobs) Wait(ctx context.Context, key runnerapi.Key, generation int64, report func(runnerapi.Job, error)) (runnerapi.Job, error) {
	return await(ctx, j.core, objectRequest("get-job", key), generation, progressWait, report,
		func(j runnerapi.Job) bool { return j.Generation >= generation && j.Settled() })
}

// Logs is like Apps.Logs. With Follow it ends when the Job does.
func (j Jobs) Logs(ctx context.Context, key runnerapi.Key, opts runnerapi.LogOptions, emit func(runnerapi.LogLine) error) error {
	return j.logs(ctx, objectRequest("get-job-logs", key), opts, emit)
}

// Delete stops a Job and removes it with its pods.
func (j Jobs) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	return j.remove(ctx, objectRequest("delete-job", key), opts)
}
