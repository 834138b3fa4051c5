package client

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// PutSecret creates the Secret or replaces all its keys.
func (c *Client) PutSecret(ctx context.Context, key runnerapi.Key, spec runnerapi.SecretSpec, opts runnerapi.WriteOptions) (runnerapi.Secret, error) {
	var secret runnerapi.Secret
	_, err := c.call(ctx, objectRequest("put-secret", key).send(spec).write(opts), &secret)
	return secret, err
}

// GetSecret reads a Secret's keys, sizes and digest.
func (c *Client) GetSecret(ctx context.Context, key runnerapi.Key) (runnerapi.Secret, error) {
	var secret runnerapi.Secret
	_, err := c.call(ctx, objectRequest("get-secret", key), &secret)
	return secret, err
}

// ListSecrets reads the Secrets of a namespace that the agent manages.
func (c *Client) ListSecrets(ctx context.Context, namespace string) ([]runnerapi.Secret, error) {
	var list runnerapi.SecretList
	_, err := c.call(ctx, newRequest("list-secrets", namespace), &list)
	return list.Items, err
}

// DeleteSecret removes a Secret.
func (c *Client) DeleteSecret(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	return c.remove(ctx, objectRequest("delete-secret", key), opts)
}

// PutNamespace creates the namespace or updates its labels.
func (c *Client) PutNamespace(ctx context.Context, name string, spec runnerapi.NamespaceSpec, opts runnerapi.WriteOptions) (runnerapi.Namespace, error) {
	var ns runnerapi.Namespace
	_, err := c.call(ctx, newRequest("put-namespace", name).send(spec).write(opts), &ns)
	return ns, err
}

// GetNamespace reads a managed namespace.
func (c *Client) GetNamespace(ctx context.Context, name string) (runnerapi.Namespace, error) {
	var ns runnerapi.Namespace
	_, err := c.call(ctx, newRequest("get-namespace", name), &ns)
	return ns, err
}

// ListNamespaces reads all managed namespaces.
func (c *Client) ListNamespaces(ctx context.Context) ([]runnerapi.Namespace, error) {
	var list runnerapi.NamespaceList
	_, err := c.call(ctx, newRequest("list-namespaces"), &list)
	return list.Items, err
}

// DeleteNamespace removes a namespace with everything in it.
func (c *Client) DeleteNamespace(ctx context.Context, name string, opts runnerapi.WriteOptions) error {
	return c.remove(ctx, newRequest("delete-namespace", name), opts)
}

// Cluster describes the agent's cluster.
func (c *Client) Cluster(ctx context.Context) (runnerapi.Cluster, error) {
	var cluster runnerapi.Cluster
	_, err := c.call(ctx, newRequest("get-cluster"), &cluster)
	return cluster, err
}
