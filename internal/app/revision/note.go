package revision

import (
	"encoding/json"
	"slices"

	"github.com/pipeops/pipeops-vm-agent/internal/app/v1alpha1"
	"github.com/pipeops/pipeops-vm-agent/internal/objectmeta"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Note records who made one generation of an App, and why. It is written with the spec, so that it
// cannot be lost between two writes.
type Note struct {
	Generation int64             `json:"generation"`
	Runner     string            `json:"runner,omitempty"`
	Actor      string            `json:"actor,omitempty"`
	RequestID  string            `json:"requestId,omitempty"`
	Commit     string            `json:"commit,omitempty"`
	Restores   int64             `json:"restores,omitempty"`
	Undone     *runnerapi.Undone `json:"undone,omitempty"`
}

// NoteBy returns the note of a command.
func NoteBy(opts runnerapi.WriteOptions) Note {
	return Note{Runner: opts.Caller.Runner, Actor: opts.Caller.Actor, RequestID: opts.Caller.RequestID, Commit: opts.Commit}
}

// maxNotes bounds what is read of an annotation that any client may have written.
const maxNotes = 64 << 10

// notesOf returns the notes of the newest generation and of the one that may come.
func notesOf(a *v1alpha1.App) []Note {
	raw := a.Annotations[objectmeta.Notes]
	var notes []Note
	if len(raw) > maxNotes || json.Unmarshal([]byte(raw), &notes) != nil {
		return nil
	}
	return notes
}

// NoteOf returns the note of a generation. It is empty if the generation was not made by the agent.
func NoteOf(a *v1alpha1.App, generation int64) Note {
	for _, n := range notesOf(a) {
		if n.Generation == generation {
			return n
		}
	}
	return Note{Generation: generation}
}

// AddNote records what the spec that is about to be written is. Whether that makes a new generation
// is known only afterwards, so the note of the current one stays.
func AddNote(a *v1alpha1.App, n Note) error {
	n.Generation = a.Generation + 1
	keep := []Note{n}
	var present Note
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

// DropNote removes the note of a generation.
func DropNote(a *v1alpha1.App, generation int64) error {
	return setNotes(a, slices.DeleteFunc(notesOf(a), func(n Note) bool { return n.Generation == generation }))
}

func setNotes(a *v1alpha1.App, notes []Note) error {
	raw, err := json.Marshal(notes)
	if err != nil {
		return err
	}
	if a.Annotations == nil {
		a.Annotations = map[string]string{}
	}
	a.Annotations[objectmeta.Notes] = string(raw)
	return nil
}
