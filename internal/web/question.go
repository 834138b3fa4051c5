package web

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"al.essio.dev/pkg/shellescape"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Question is what a page asks, once, before something changes: template "confirm".
type Question struct {
	Text string
	// Caution is what to know before; empty for nothing.
	Caution string
	// Command is the equivalent command line, as CommandLine returns it, and With the program it is
	// for.
	Command, With  string
	Button, Action string
	Back, BackText string
	Danger         bool
	Fields         []Field
	Hidden         []Hidden
	// Problem is why the same form was refused before; nil for the first time.
	Problem *problem.Error
}

// CommandLine returns a command and its arguments for people to paste into a POSIX shell. The shell
// reads each argument as one word: arguments may come from the address of a page.
func CommandLine(command string, arguments ...string) string {
	for _, argument := range arguments {
		command += " " + shellescape.Quote(shellescape.StripUnsafe(argument))
	}
	return command
}

// Again returns the question with what was sent, and why that was refused. It reports whether to
// ask again: some errors are not about the form.
func (q Question) Again(sent url.Values, why error) (Question, bool) {
	q.Problem = ProblemOf(why)
	about := q.Problem.Status
	if len(q.Fields) == 0 || about == http.StatusUnauthorized || about == http.StatusForbidden || about >= http.StatusInternalServerError {
		return q, false
	}
	for i := range q.Fields {
		q.Fields[i].Value, q.Fields[i].Values = sent.Get(q.Fields[i].Name), sent[q.Fields[i].Name]
	}
	for i := range q.Hidden { // of a form made from an earlier generation, too: sent again, it is refused again
		q.Hidden[i].Value = sent.Get(q.Hidden[i].Name)
	}
	return q, true
}

// confirmField is the field in which a person types the name of what is deleted.
const confirmField = "confirm"

// ConfirmField asks to type the name of what is deleted.
func ConfirmField(name string) Field {
	return Field{Kind: "text", Name: confirmField, Label: "Type " + name + " to confirm", Required: true}
}

// Confirmed returns an error unless the name of what is deleted was typed.
func Confirmed(sent url.Values, name string) error {
	if typed := sent.Get(confirmField); strings.TrimSpace(typed) != name {
		return problem.Errorf(problem.Invalid, "type "+name, "%s: %.70q is not the name of what is deleted", confirmField, typed)
	}
	return nil
}

// Field is a field of a question's form.
type Field struct {
	Name, Label, Hint string
	Kind              string // text, textarea, number, select, checkbox, choices
	Value             string
	Values            []string // of choices: the chosen ones
	Options           []string // of a select or of choices
	Min, Max          int32    // of a number
	Required          bool
	// More has the field folded away, below the others.
	More bool
}

// Chosen reports whether an option of choices is chosen.
func (f Field) Chosen(option string) bool { return slices.Contains(f.Values, option) }

// The least and the most lines that a field shows at once.
const minRows, maxRows = 3, 16

// Rows returns how many lines a textarea shows.
func (f Field) Rows() int { return max(minRows, min(maxRows, strings.Count(f.Value, "\n")+1)) }

// Folded reports whether some fields are folded away.
func (q Question) Folded() bool {
	return slices.ContainsFunc(q.Fields, func(f Field) bool { return f.More })
}

// Unfolded reports whether the fields that are folded away are shown: a refused form may have one
// of them at fault.
func (q Question) Unfolded() bool {
	return q.Problem != nil && slices.ContainsFunc(q.Fields, func(f Field) bool { return f.More && f.Value != "" })
}

// Hidden is a value that a form sends along.
type Hidden struct{ Name, Value string }
