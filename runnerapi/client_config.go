package runnerapi

import (
	"context"
	"net/http"
	"net/url"
)

func configMapURL(key Key) string {
	return namespaceURL(key.Namespace) + "/configmaps/" + url.PathEscape(key.Name)
}

// PutConfigMap creates the ConfigMap or replaces all its keys.
func (c *Client) PutConfigMap(ctx context.Context, key Key, spec ConfigMapSpec, opts WriteOptions) (ConfigMap, error) {
	var cm ConfigMap
	_, err := c.call(ctx, (&request{method: http.MethodPut, path: configMapURL(key), body: spec}).write(opts), &cm)
	return cm, err
}

// GetConfigMap reads a ConfigMap with its values.
func (c *Client) GetConfigMap(ctx context.Context, key Key) (ConfigMap, error) {
	var cm ConfigMap
	_, err := c.call(ctx, &request{method: http.MethodGet, path: configMapURL(key)}, &cm)
	return cm, err
}

// ListConfigMaps reads the ConfigMaps of a namespace that the agent manages,
// without their values.
func (c *Client) ListConfigMaps(ctx context.Context, namespace string) ([]ConfigMap, error) {
	var list ConfigMapList
	_, err := c.call(ctx, &request{method: http.MethodGet, path: namespaceURL(namespace) + "/configmaps"}, &list)
	return list.Items, err
}

// DeleteConfigMap removes a ConfigMap.
func (c *Client) DeleteConfigMap(ctx context.Context, key Key, opts WriteOptions) error {
	return c.remove(ctx, configMapURL(key), opts)
}

// Metrics returns what an App uses and what it requests.
func (c *Client) Metrics(ctx context.Context, key Key) (AppMetrics, error) {
	var m AppMetrics
	_, err := c.call(ctx, &request{method: http.MethodGet, path: appURL(key) + "/metrics"}, &m)
	return m, err
}
