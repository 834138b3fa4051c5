package app

import "context"

// Manages reports whether the agent manages a namespace.
func (e *Engine) Manages(ctx context.Context, namespace string) (bool, error) {
	return e.store.Manages(ctx, namespace)
}
