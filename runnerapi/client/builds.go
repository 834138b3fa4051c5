package client

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Builds are the calls about images that the agent builds.
type Builds struct{ *core }

// Run starts a build, unless this very run of this very spec was started before.
func (b Builds) Run(ctx context.Context, key runnerapi.Key, spec runnerapi.BuildSpec, opts runnerapi.WriteOptions) (runnerapi.Build, error) {
	return fetch[runnerapi.Build](ctx, b.core, objectRequest("put-build", key).send(spec).write(opts))
}

// Get reads the newest run of a build, and the runs before in short.
func (b Builds) Get(ctx context.Context, key runnerapi.Key) (runnerapi.Build, error) {
	return fetch[runnerapi.Build](ctx, b.core, objectRequest("get-build", key))
}

// Wait waits until the newest run has ended, and reports each look at it. It outlives outages of
// the agent.
func (b Builds) Wait(ctx context.Context, key runnerapi.Key, report func(runnerapi.Build)) (runnerapi.Build, error) {
	return poll(ctx, func() (runnerapi.Build, error) { return b.Get(ctx, key) }, report,
		func(b runnerapi.Build) bool { return b.Status.Phase.Ended() })
}

// List reads the newest run of each build of a namespace.
func (b Builds) List(ctx context.Context, namespace string) ([]runnerapi.Build, error) {
	return pages(ctx, b.core, newRequest("list-builds", namespace), func(l runnerapi.BuildList) ([]runnerapi.Build, runnerapi.Page) { return l.Items, l.Page })
}

// Delete ends the run that is in progress and removes all runs.
func (b Builds) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	return b.remove(ctx, objectRequest("delete-build", key), opts)
}

// Logs calls emit for each line of the newest run until the end of the log or, with Follow,
// until the run has ended. It resumes where the log broke off, as Apps.Logs does.
func (b Builds) Logs(ctx context.Context, key runnerapi.Key, opts runnerapi.LogOptions, emit func(runnerapi.LogLine) error) error {
	return b.logs(ctx, objectRequest("build-logs", key), opts, emit)
}
