package web

import "slices"

// Question is what a page asks, once, before something changes: template "confirm".
type Question struct {
	Text string
	// Command is the equivalent command line, and With the program it is for.
	Command, With  string
	Button, Action string
	Back, BackText string
	Danger         bool
	Fields         []Field
	Hidden         []Hidden
}

// Field is a field of a question's form.
type Field struct {
	Name, Label, Hint string
	Kind              string // text, textarea, number, select, checkbox
	Value             string
	Options           []string // of a select
	Min, Max          int32    // of a number
	Required          bool
	// More has the field folded away, below the others.
	More bool
}

// Folded reports whether some fields are folded away.
func (q Question) Folded() bool {
	return slices.ContainsFunc(q.Fields, func(f Field) bool { return f.More })
}

// Hidden is a value that a form sends along.
type Hidden struct{ Name, Value string }
