package client

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Apps are the calls about Apps, with what runs in their pods.
type Apps struct{ *core }

// Deploy creates the App or replaces its spec. What it does not name of replicas, autoscaling
// and paused stays: see AppSpec.KeepUnnamed. It does not wait for the outcome:
// see Wait.
func (a Apps) Deploy(ctx context.Context, key runnerapi.Key, spec runnerapi.AppSpec, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	r := objectRequest("put-app", key).send(spec)
	if opts.Adopt {
		r.ask("adopt")
	}
	return a.command(ctx, r, opts)
}

// Scale sets the number of pods, or the bounds of autoscaling.
func (a Apps) Scale(ctx context.Context, key runnerapi.Key, scale runnerapi.Scale, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	return a.command(ctx, objectRequest("scale-app", key).send(scale), opts)
}

// Restart replaces all pods, a few at a time.
func (a Apps) Restart(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	return a.command(ctx, objectRequest("restart-app", key), opts)
}

func (a Apps) command(ctx context.Context, r *request, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	return fetch[runnerapi.App](ctx, a.core, r.write(opts))
}

// Get reads one App.
func (a Apps) Get(ctx context.Context, key runnerapi.Key) (runnerapi.App, error) {
	return fetch[runnerapi.App](ctx, a.core, objectRequest("get-app", key))
}

// List returns the Apps of a namespace, or of all managed namespaces if it is empty.
func (a Apps) List(ctx context.Context, namespace string) ([]runnerapi.App, error) {
	r := newRequest("list-apps")
	if namespace != "" {
		r = newRequest("list-namespace-apps", namespace)
	}
	return pages(ctx, a.core, r, func(l runnerapi.AppList) ([]runnerapi.App, runnerapi.Page) { return l.Items, l.Page })
}

// Delete removes the App and the objects that it made.
func (a Apps) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	return a.remove(ctx, objectRequest("delete-app", key), opts)
}
