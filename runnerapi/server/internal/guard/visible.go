package guard

import (
	"context"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/server/internal/request"
)

// Seen returns those of an answer's items that are in namespaces that the policy lets the
// caller see. It returns none for a call that Check did not see.
func Seen[T any](ctx context.Context, g *Guard, items []T, namespace func(T) string) []T {
	intent, ok := request.Intent(ctx)
	if !ok {
		return []T{}
	}
	known := map[string]bool{"": true} // in none
	kept := make([]T, 0, len(items))
	for _, item := range items {
		where := namespace(item)
		visible, asked := known[where]
		if !asked {
			visible = g.policy().Visible(intent.Runner, intent.Command, where)
			known[where] = visible
		}
		if visible {
			kept = append(kept, item)
		}
	}
	return kept
}
