package ledger

import (
	"cmp"
	"fmt"
	"slices"
)

// Held is an object as the cluster holds it.
type Held struct {
	State
	// Rollouts is how many changes of the App's Deployment the cluster knows.
	Rollouts int64
}

// Effects compares the commands with the existing objects, and returns the differences. It also
// reports objects without any command.
func Effects(commands []Command, held map[Target]Held) (problems []string) {
	histories := map[Target]*history{}
	for i := range commands {
		c := &commands[i]
		h := histories[c.Target()]
		if h == nil {
			h = newHistory()
			histories[c.Target()] = h
		}
		if c.Outcome == Refused && !c.NotFound {
			problems = append(problems, fmt.Sprintf("%s was refused: %s", describe(c), c.Error))
		}
		if p := h.take(c); p != "" {
			problems = append(problems, p)
		}
	}
	for _, t := range sorted(histories) {
		h := histories[t]
		h.arrive()
		if !h.explains(held[t]) {
			problems = append(problems, fmt.Sprintf("%s %s: the cluster has %s; commanded was %s", t.Object, t.Name, held[t].describe(), h))
		}
	}
	for _, t := range sorted(held) {
		if histories[t] == nil && held[t].Exists {
			problems = append(problems, fmt.Sprintf("%s %s is in the cluster and was never commanded", t.Object, t.Name))
		}
	}
	return problems
}

func (h Held) describe() string {
	if h.Rollouts == 0 {
		return h.String()
	}
	return fmt.Sprintf("%s, rolled out %d times at most", h.State, h.Rollouts)
}

// explains reports whether the history explains the object's state.
func (h *history) explains(is Held) bool {
	for w := range h.worlds {
		if w.same(is.State) && is.Rollouts <= w.Steps {
			return true
		}
	}
	return false
}

func (s State) same(is State) bool {
	restarted := s.RestartedAt == is.RestartedAt || s.RestartedAt == Anything && is.RestartedAt != ""
	return s.Exists == is.Exists && s.Value == is.Value && s.Replicas == is.Replicas && s.Generation == is.Generation && restarted
}

func sorted[V any](m map[Target]V) []Target {
	keys := make([]Target, 0, len(m))
	for t := range m {
		keys = append(keys, t)
	}
	slices.SortFunc(keys, func(a, b Target) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Object, b.Object))
	})
	return keys
}
