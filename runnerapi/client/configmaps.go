package client

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// ConfigMaps are the calls about the ConfigMaps that the agent manages.
type ConfigMaps struct{ *core }

// Set creates the ConfigMap or replaces all its keys.
func (c ConfigMaps) Set(ctx context.Context, key runnerapi.Key, spec runnerapi.ConfigMapSpec, opts runnerapi.WriteOptions) (runnerapi.ConfigMap, error) {
	return fetch[runnerapi.ConfigMap](ctx, c.core, objectRequest("put-config-map", key).send(spec).write(opts))
}

// Get reads a ConfigMap with its values.
func (c ConfigMaps) Get(ctx context.Context, key runnerapi.Key) (runnerapi.ConfigMap, error) {
	return fetch[runnerapi.ConfigMap](ctx, c.core, objectRequest("get-config-map", key))
}

// List reads the ConfigMaps of a namespace that the agent manages,
// without their values.
func (c ConfigMaps) List(ctx context.Context, namespace string) ([]runnerapi.ConfigMap, error) {
	return pages(ctx, c.core, newRequest("list-config-maps", namespace), func(l runnerapi.ConfigMapList) ([]runnerapi.ConfigMap, runnerapi.Page) { return l.Items, l.Page })
}

// Delete removes a ConfigMap.
func (c ConfigMaps) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	return c.remove(ctx, objectRequest("delete-config-map", key), opts)
}
