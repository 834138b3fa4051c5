package client

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Deploy creates the App or replaces its spec. What it does not name of replicas, autoscaling
// and paused stays: see AppSpec.KeepUnnamed. It does not wait for the outcome:
// see Wait.
func (c *Client) Deploy(ctx context.Context, key runnerapi.Key, spec runnerapi.AppSpec, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	r := objectRequest("put-app", key).send(spec)
	if opts.Adopt {
		r.ask("adopt")
	}
	return c.command(ctx, r, opts)
}

// Scale sets the number of pods, or the bounds of autoscaling.
func (c *Client) Scale(ctx context.Context, key runnerapi.Key, scale runnerapi.Scale, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	return c.command(ctx, objectRequest("scale-app", key).send(scale), opts)
}

// Restart replaces all pods, a few at a time.
func (c *Client) Restart(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	return c.command(ctx, objectRequest("restart-app", key), opts)
}

func (c *Client) command(ctx context.Context, r *request, opts runnerapi.WriteOptions) (runnerapi.App, error) {
	var app runnerapi.App
	_, err := c.call(ctx, r.write(opts), &app)
	return app, err
}

// Get reads one App.
func (c *Client) Get(ctx context.Context, key runnerapi.Key) (runnerapi.App, error) {
	var app runnerapi.App
	_, err := c.call(ctx, objectRequest("get-app", key), &app)
	return app, err
}

// List returns the Apps of a namespace, or of all managed namespaces if it is empty.
func (c *Client) List(ctx context.Context, namespace string) ([]runnerapi.App, error) {
	r := newRequest("list-apps")
	if namespace != "" {
		r = newRequest("list-namespace-apps", namespace)
	}
	var list runnerapi.AppList
	_, err := c.call(ctx, r, &list)
	return list.Items, err
}

// Delete removes the App and the objects that it made.
func (c *Client) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	return c.remove(ctx, objectRequest("delete-app", key), opts)
}
