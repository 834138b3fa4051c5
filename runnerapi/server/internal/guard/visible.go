package guard

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

// Visible returns whether the policy lets the caller see what is in a namespace. It shows nothing
// to a call that Check did not see.
func Visible(ctx context.Context, g *Guard) func(namespace string) bool {
	intent, ok := request.Intent(ctx)
	if !ok {
		return func(string) bool { return false }
	}
	known := map[string]bool{"": true} // in none
	return func(namespace string) bool {
		visible, asked := known[namespace]
		if !asked {
			visible = g.policy().Visible(intent.Runner, intent.Command, namespace)
			known[namespace] = visible
		}
		return visible
	}
}

// Seen returns those of an answer's items that are in visible namespaces.
func Seen[T any](ctx context.Context, g *Guard, items []T, namespace func(T) string) []T {
	visible := Visible(ctx, g)
	kept := make([]T, 0, len(items))
	for _, item := range items {
		if visible(namespace(item)) {
			kept = append(kept, item)
		}
	}
	return kept
}
