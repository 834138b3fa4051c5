package client

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Pipelines are the calls about jobs that run one after another.
type Pipelines struct{ *core }

// Run runs a Pipeline once. It does not wait for the outcome: see Wait.
func (p Pipelines) Run(ctx context.Context, key runnerapi.Key, spec runnerapi.PipelineSpec, opts runnerapi.WriteOptions) (runnerapi.Pipeline, error) {
	return fetch[runnerapi.Pipeline](ctx, p.core, objectRequest("put-pipeline", key).send(spec).write(opts))
}

// Get reads one Pipeline.
func (p Pipelines) Get(ctx context.Context, key runnerapi.Key) (runnerapi.Pipeline, error) {
	return fetch[runnerapi.Pipeline](ctx, p.core, objectRequest("get-pipeline", key))
}

// List reads the Pipelines of a namespace.
func (p Pipelines) List(ctx context.Context, namespace string) ([]runnerapi.Pipeline, error) {
	return pages(ctx, p.core, newRequest("list-pipelines", namespace), func(l runnerapi.PipelineList) ([]runnerapi.Pipeline, runnerapi.Page) { return l.Items, l.Page })
}

// Wait is like Jobs.Wait.
func (p Pipelines) Wait(ctx context.Context, key runnerapi.Key, generation int64, report func(runnerapi.Pipeline, error)) (runnerapi.Pipeline, error) {
	return await(ctx, p.core, objectRequest("get-pipeline", key), generation, progressWait, report,
		func(p runnerapi.Pipeline) bool { return p.Generation >= generation && p.Settled() })
}

// Logs is like Apps.Logs, of all jobs of a Pipeline. With Follow it ends when the Pipeline does.
func (p Pipelines) Logs(ctx context.Context, key runnerapi.Key, opts runnerapi.LogOptions, emit func(runnerapi.LogLine) error) error {
	return p.logs(ctx, objectRequest("get-pipeline-logs", key), opts, emit)
}

// Delete stops a Pipeline and removes it with its pods.
func (p Pipelines) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	return p.remove(ctx, objectRequest("delete-pipeline", key), opts)
}
