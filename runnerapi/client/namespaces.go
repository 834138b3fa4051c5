package client

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Namespaces are the calls about managed namespaces.
type Namespaces struct{ *core }

// Set creates the namespace or updates its labels.
func (n Namespaces) Set(ctx context.Context, name string, spec runnerapi.NamespaceSpec, opts runnerapi.WriteOptions) (runnerapi.Namespace, error) {
	return fetch[runnerapi.Namespace](ctx, n.core, newRequest("put-namespace", name).send(spec).write(opts))
}

// Get reads a managed namespace.
func (n Namespaces) Get(ctx context.Context, name string) (runnerapi.Namespace, error) {
	return fetch[runnerapi.Namespace](ctx, n.core, newRequest("get-namespace", name))
}

// List reads all managed namespaces.
func (n Namespaces) List(ctx context.Context) ([]runnerapi.Namespace, error) {
	return pages(ctx, n.core, newRequest("list-namespaces"), func(l runnerapi.NamespaceList) ([]runnerapi.Namespace, runnerapi.Page) { return l.Items, l.Page })
}

// Delete removes a namespace with everything in it.
func (n Namespaces) Delete(ctx context.Context, name string, opts runnerapi.WriteOptions) error {
	return n.remove(ctx, newRequest("delete-namespace", name), opts)
}
