package app

import (
	"encoding/json"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/managed"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// note records who made one generation of an App, and why. It is written with the spec, so that it
// cannot be lost between two writes.
type note struct {
	Generation int64             `json:"generation"`
	Runner     string            `json:"runner,omitempty"`
	RequestID  string            `json:"requestId,omitempty"`
	Commit     string            `json:"commit,omitempty"`
	Restores   int64             `json:"restores,omitempty"`
	Undone     *runnerapi.Undone `json:"undone,omitempty"`
}

// maxNotes bounds what is read of an annotation that any client may have written.
const maxNotes = 64 << 10

// notesOf returns the notes of the newest generation and of the one that may come.
func notesOf(a *App) []note {
	raw := a.Annotations[managed.Notes]
	var notes []note
	if len(raw) > maxNotes || json.Unmarshal([]byte(raw), &notes) != nil {
		return nil
	}
	return notes
}

// noteOf returns the note of a generation. It is empty if the generation was not made by the agent.
func noteOf(a *App, generation int64) note {
	for _, n := range notesOf(a) {
		if n.Generation == generation {
			return n
		}
	}
	return note{Generation: generation}
}

// addNote records what the spec that is about to be written is. Whether that makes a new generation
// is known only afterwards, so the note of the current one stays.
func addNote(a *App, n note) error {
	n.Generation = a.Generation + 1
	keep := []note{n}
	var present note
	for _, earlier := range notesOf(a) {
		if earlier.Generation <= a.Generation && earlier.Generation > present.Generation {
			present = earlier
		}
	}
	if present.Generation > 0 {
		keep = append(keep, present)
	}
	return setNotes(a, keep)
}

// dropNote removes the note of a generation.
func dropNote(a *App, generation int64) error {
	return setNotes(a, slices.DeleteFunc(notesOf(a), func(n note) bool { return n.Generation == generation }))
}

func setNotes(a *App, notes []note) error {
	raw, err := json.Marshal(notes)
	if err != nil {
		return err
	}
	if a.Annotations == nil {
		a.Annotations = map[string]string{}
	}
	a.Annotations[managed.Notes] = string(raw)
	return nil
}
