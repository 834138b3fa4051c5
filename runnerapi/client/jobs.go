package client

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// RunJob runs a Job once. It does not wait for the outcome: see WaitJob.
func (c *Client) RunJob(ctx context.Context, key runnerapi.Key, spec runnerapi.JobSpec, opts runnerapi.WriteOptions) (runnerapi.Job, error) {
	return fetch[runnerapi.Job](ctx, c, objectRequest("put-job", key).send(spec).write(opts))
}

// GetJob reads one Job.
func (c *Client) GetJob(ctx context.Context, key runnerapi.Key) (runnerapi.Job, error) {
	return fetch[runnerapi.Job](ctx, c, objectRequest("get-job", key))
}

// ListJobs reads the Jobs of a namespace.
func (c *Client) ListJobs(ctx context.Context, namespace string) ([]runnerapi.Job, error) {
	list, err := fetch[runnerapi.JobList](ctx, c, newRequest("list-jobs", namespace))
	return list.Items, err
}

// WaitJob blocks until the Job of at least this generation has ended or cannot go on, or ctx ends.
// It returns the newest known state in all cases. Every other second it reports the state, or why
// the agent cannot be reached. It outlives the agent's restarts and outages.
func (c *Client) WaitJob(ctx context.Context, key runnerapi.Key, generation int64, report func(runnerapi.Job, error)) (runnerapi.Job, error) {
	return await(ctx, c, objectRequest("get-job", key), generation, progressWait, report,
		func(j runnerapi.Job) bool { return j.Generation >= generation && j.Settled() })
}

// JobLogs is like Logs of a Job. With Follow it ends when the Job does.
func (c *Client) JobLogs(ctx context.Context, key runnerapi.Key, opts runnerapi.LogOptions, emit func(runnerapi.LogLine) error) error {
	return c.logs(ctx, objectRequest("get-job-logs", key), opts, emit)
}

// DeleteJob stops a Job and removes it with its pods.
func (c *Client) DeleteJob(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	return c.remove(ctx, objectRequest("delete-job", key), opts)
}

// RunPipeline runs a Pipeline once. It does not wait for the outcome: see
// WaitPipeline.
func (c *Client) RunPipeline(ctx context.Context, key runnerapi.Key, spec runnerapi.PipelineSpec, opts runnerapi.WriteOptions) (runnerapi.Pipeline, error) {
	return fetch[runnerapi.Pipeline](ctx, c, objectRequest("put-pipeline", key).send(spec).write(opts))
}

// GetPipeline reads one Pipeline.
func (c *Client) GetPipeline(ctx context.Context, key runnerapi.Key) (runnerapi.Pipeline, error) {
	return fetch[runnerapi.Pipeline](ctx, c, objectRequest("get-pipeline", key))
}

// ListPipelines reads the Pipelines of a namespace.
func (c *Client) ListPipelines(ctx context.Context, namespace string) ([]runnerapi.Pipeline, error) {
	list, err := fetch[runnerapi.PipelineList](ctx, c, newRequest("list-pipelines", namespace))
	return list.Items, err
}

// WaitPipeline is like WaitJob of a Pipeline.
func (c *Client) WaitPipeline(ctx context.Context, key runnerapi.Key, generation int64, report func(runnerapi.Pipeline, error)) (runnerapi.Pipeline, error) {
	return await(ctx, c, objectRequest("get-pipeline", key), generation, progressWait, report,
		func(p runnerapi.Pipeline) bool { return p.Generation >= generation && p.Settled() })
}

// PipelineLogs is like Logs of all jobs of a Pipeline. With Follow it ends when the Pipeline does.
func (c *Client) PipelineLogs(ctx context.Context, key runnerapi.Key, opts runnerapi.LogOptions, emit func(runnerapi.LogLine) error) error {
	return c.logs(ctx, objectRequest("get-pipeline-logs", key), opts, emit)
}

// DeletePipeline stops a Pipeline and removes it with its pods.
func (c *Client) DeletePipeline(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	return c.remove(ctx, objectRequest("delete-pipeline", key), opts)
}

// fetch returns a call that is answered with a T.
func fetch[T any](ctx context.Context, c *Client, r *request) (T, error) {
	var out T
	_, err := c.call(ctx, r, &out)
	return out, err
}
