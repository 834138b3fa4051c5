package ledger

import "fmt"

// State is an object's state as far as commands determine it. Its text is Anything if a command
// without an answer determined it.
type State struct {
	Exists      bool
	Value       string
	Replicas    int32
	Generation  int64
	RestartedAt string
	// Steps counts the changes that caused rollouts since the App was created.
	Steps int64
}

// Anything stands for an unknown text.
const Anything = "?"

// world is one possible course of events: the object's state, and the commands without an answer
// that have not arrived, as bits. Such a command may arrive late, after others that were answered.
type world struct {
	State
	open uint64
}

// history holds the possible courses of events of one object.
type history struct {
	worlds map[world]bool
	open   []*Command // those without an answer, by their bits
}

func newHistory() *history { return &history{worlds: map[world]bool{{}: true}} }

// maxOpen bounds the commands without an answer of one object.
const maxOpen = 16

// arrive adds the worlds in which commands without an answer have arrived by now.
func (h *history) arrive() {
	var todo []world
	for w := range h.worlds {
		todo = append(todo, w)
	}
	for len(todo) > 0 {
		w := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for i, c := range h.open {
			bit := uint64(1) << i
			if w.open&bit == 0 {
				continue
			}
			next := world{w.State, w.open &^ bit}
			if after, ok := apply(w.State, c); ok {
				next.State = after
			}
			if !h.worlds[next] {
				h.worlds[next] = true
				todo = append(todo, next)
			}
		}
	}
}

// take adds one more command. It returns what no world explains. After that, the object's history
// starts again from the command's answer.
func (h *history) take(c *Command) (problem string) {
	h.arrive()
	next := map[world]bool{}
	switch c.Outcome {
	case Unanswered:
		if len(h.open) == maxOpen {
			return fmt.Sprintf("more than %d commands without an answer: the workers have to give up less often", maxOpen)
		}
		bit := uint64(1) << len(h.open)
		h.open = append(h.open, c)
		for w := range h.worlds {
			next[world{w.State, w.open | bit}] = true
		}
		h.worlds = next
		h.arrive()
		return ""
	case Refused:
		for w := range h.worlds {
			if _, possible := apply(w.State, c); !c.NotFound || !possible {
				next[w] = true
			}
		}
	default:
		for w := range h.worlds {
			if after, possible := apply(w.State, c); possible && agrees(after, c) {
				next[world{after, w.open}] = true
			}
		}
	}
	if len(next) > 0 {
		h.worlds = next
		return ""
	}
	problem = fmt.Sprintf("the answer to %s fits nothing that was commanded before: expected %s", describe(c), h)
	h.worlds = map[world]bool{believed(c): true}
	return problem
}

// apply carries a command out, or reports that it does not apply to the state.
func apply(s State, c *Command) (State, bool) {
	switch c.Kind {
	case Deploy:
		if !s.Exists {
			return State{Exists: true, Value: c.Value, Replicas: c.Replicas, Generation: 1, Steps: 1}, true
		}
		if s.Value != c.Value || s.Replicas != c.Replicas {
			s.Generation++
			s.Steps++
		}
		s.Value, s.Replicas = c.Value, c.Replicas
	case Scale:
		if !s.Exists {
			return s, false
		}
		if s.Replicas != c.Replicas {
			s.Generation++
			s.Steps++
		}
		s.Replicas = c.Replicas
	case Restart:
		if !s.Exists {
			return s, false
		}
		s.Steps++
		s.RestartedAt = Anything
		if c.Outcome == Acknowledged {
			s.RestartedAt = c.Answer.RestartedAt
		}
	case PutSecret, PutConfig:
		return State{Exists: true, Value: c.Value}, true
	case Delete, DeleteSecret, DeleteConfig:
		// The client treats "not found" as done if an earlier try may have done it.
		return State{}, s.Exists || c.Outcome == Acknowledged
	}
	return s, true
}

// agrees reports whether a state matches the acknowledgement.
func agrees(s State, c *Command) bool {
	switch c.Kind {
	case Deploy, Scale, Restart:
		return s.Generation == c.Answer.Generation
	}
	return true
}

// believed returns the state that an answer alone implies.
func believed(c *Command) world {
	s, _ := apply(State{Exists: true, Generation: c.Answer.Generation}, c)
	if c.Outcome == Refused {
		s = State{}
	}
	if s.Exists && c.Kind.Object() == "App" {
		s.Generation = c.Answer.Generation
	}
	return world{State: s}
}

// String returns all possible states.
func (h *history) String() string {
	seen := map[State]bool{}
	text := ""
	for w := range h.worlds {
		if seen[w.State] {
			continue
		}
		seen[w.State] = true
		if text != "" {
			text += " or "
		}
		text += w.String()
	}
	return text
}

// String describes the state.
func (s State) String() string {
	switch {
	case !s.Exists:
		return "nothing"
	case s.Generation == 0:
		return fmt.Sprintf("value %s", s.Value)
	}
	return fmt.Sprintf("value %s, %d replicas, generation %d, restarted at %q, %d steps", s.Value, s.Replicas, s.Generation, s.RestartedAt, s.Steps)
}

func describe(c *Command) string {
	text := fmt.Sprintf("%s of %s (number %d, key %s, %s", c.Kind, c.Name, c.Number, c.Key, c.Outcome)
	if c.Answer.Generation > 0 {
		text += fmt.Sprintf(" with generation %d", c.Answer.Generation)
	}
	return text + ")"
}
