package client

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Secrets are the calls about the Secrets that the agent manages. No answer has a value.
type Secrets struct{ *core }

// Set creates the Secret or replaces all its keys.
func (s Secrets) Set(ctx context.Context, key runnerapi.Key, spec runnerapi.SecretSpec, opts runnerapi.WriteOptions) (runnerapi.Secret, error) {
	return fetch[runnerapi.Secret](ctx, s.core, objectRequest("put-secret", key).send(spec).write(opts))
}

// Get reads a Secret's keys, sizes and digest.
func (s Secrets) Get(ctx context.Context, key runnerapi.Key) (runnerapi.Secret, error) {
	return fetch[runnerapi.Secret](ctx, s.core, objectRequest("get-secret", key))
}

// List reads the Secrets of a namespace that the agent manages.
func (s Secrets) List(ctx context.Context, namespace string) ([]runnerapi.Secret, error) {
	return pages(ctx, s.core, newRequest("list-secrets", namespace), func(l runnerapi.SecretList) ([]runnerapi.Secret, runnerapi.Page) { return l.Items, l.Page })
}

// Delete removes a Secret.
func (s Secrets) Delete(ctx context.Context, key runnerapi.Key, opts runnerapi.WriteOptions) error {
	return s.remove(ctx, objectRequest("delete-secret", key), opts)
}
