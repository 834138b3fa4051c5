package client

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// PutConfigMap creates the ConfigMap or replaces all its keys.
func (c *Client) PutConfigMap(ctx context.Context, key runnerapi.Key, spec runnerapi.ConfigMapSpec, opts runnerapi.WriteOptions) (runnerapi.ConfigMap, error) {
	var cm runnerapi.ConfigMap
	_, err := c.call(ctx, objectRequest("put-config-map", key).send(spec).write(opts), &cm)
	return cm, err
}

// GetConfigMap reads a ConfigMap with its values.
func (c *Client) GetConfigMap(ctx context.Context, key runnerapi.Key) (runnerapi.ConfigMap, error) {
	var cm runnerapi.ConfigMap
	_, err := c.call(ctx, objectRequest("get-config-map", key), &cm)
	return cm, err
}

// ListConfigMaps reads the ConfigMaps of a namespace that the agent manages,
// without their values.
func (c *Client) ListConfigMaps(ctx context.Context, namespace string) ([]runnerapi.ConfigMap, error) {
	var list runnerapi.ConfigMapList
	_, err := c.call(ctx, newRequest("list-config-maps", namespace), &list)
	return list.Items, err
}

// DeleteConfigMap removes a ConfigMap.
func (c *Client) DeleteConfigMap(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	return c.remove(ctx, objectRequest("delete-config-map", key), opts)
}

// Metrics returns what an App uses and what it requests.
func (c *Client) Metrics(ctx context.Context, key runnerapi.Key) (runnerapi.AppMetrics, error) {
	var m runnerapi.AppMetrics
	_, err := c.call(ctx, objectRequest("get-app-metrics", key), &m)
	return m, err
}
