package runnerapi

import (
	"context"
	"net/http"
	"net/url"
)

func secretURL(key Key) string {
	return namespaceURL(key.Namespace) + "/secrets/" + url.PathEscape(key.Name)
}

// PutSecret creates the Secret or replaces all its keys.
func (c *Client) PutSecret(ctx context.Context, key Key, spec SecretSpec, opts WriteOptions) (Secret, error) {
	var secret Secret
	_, err := c.call(ctx, (&request{method: http.MethodPut, path: secretURL(key), body: spec}).write(opts), &secret)
	return secret, err
}

// GetSecret reads a Secret's keys, sizes and digest.
func (c *Client) GetSecret(ctx context.Context, key Key) (Secret, error) {
	var secret Secret
	_, err := c.call(ctx, &request{method: http.MethodGet, path: secretURL(key)}, &secret)
	return secret, err
}

// ListSecrets reads the Secrets of a namespace that the agent manages.
func (c *Client) ListSecrets(ctx context.Context, namespace string) ([]Secret, error) {
	var list SecretList
	_, err := c.call(ctx, &request{method: http.MethodGet, path: namespaceURL(namespace) + "/secrets"}, &list)
	return list.Items, err
}

// DeleteSecret removes a Secret.
func (c *Client) DeleteSecret(ctx context.Context, key Key, opts WriteOptions) error {
	return c.remove(ctx, secretURL(key), opts)
}

// PutNamespace creates the namespace or updates its labels.
func (c *Client) PutNamespace(ctx context.Context, name string, spec NamespaceSpec, opts WriteOptions) (Namespace, error) {
	var ns Namespace
	_, err := c.call(ctx, (&request{method: http.MethodPut, path: namespaceURL(name), body: spec}).write(opts), &ns)
	return ns, err
}

// GetNamespace reads a managed namespace.
func (c *Client) GetNamespace(ctx context.Context, name string) (Namespace, error) {
	var ns Namespace
	_, err := c.call(ctx, &request{method: http.MethodGet, path: namespaceURL(name)}, &ns)
	return ns, err
}

// ListNamespaces reads all managed namespaces.
func (c *Client) ListNamespaces(ctx context.Context) ([]Namespace, error) {
	var list NamespaceList
	_, err := c.call(ctx, &request{method: http.MethodGet, path: "/namespaces"}, &list)
	return list.Items, err
}

// DeleteNamespace removes a namespace with everything in it.
func (c *Client) DeleteNamespace(ctx context.Context, name string, opts WriteOptions) error {
	return c.remove(ctx, namespaceURL(name), opts)
}

// Cluster describes the agent's cluster.
func (c *Client) Cluster(ctx context.Context) (Cluster, error) {
	var cluster Cluster
	_, err := c.call(ctx, &request{method: http.MethodGet, path: "/cluster"}, &cluster)
	return cluster, err
}
