package server

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// seen returns those of an answer's items that are in namespaces that the policy lets the
// caller see.
func seen[T any](ctx context.Context, s *server, items []T, namespace func(T) string) []T {
	intent, ok := ctx.Value(intentKey{}).(runnerapi.Intent)
	if !ok || s.Policy == nil {
		return items
	}
	known := map[string]bool{"": true} // in none
	kept := make([]T, 0, len(items))
	for _, item := range items {
		where := namespace(item)
		visible, asked := known[where]
		if !asked {
			visible = s.Policy.Visible(intent.Runner, intent.Command, where)
			known[where] = visible
		}
		if visible {
			kept = append(kept, item)
		}
	}
	return kept
}
