// Package decode reads YAML and JSON from outside the process. Before a parser builds anything,
// it refuses a text that would take more memory than its length suggests. No other package of ours
// converts YAML: the linter ensures that.
package decode

import (
	"errors"
	"fmt"
	"strings"
)

// Limits are the limits of a text.
type Limits struct {
	Bytes int
	// Values bounds lines, entries and levels, counted again wherever an alias stands for
	// them: a value takes some hundred bytes while it is read.
	Values int
	// Aliases bounds what looks like an alias, *NAME.
	Aliases int
	// Expanded bounds the bytes of all keys and texts, with what aliases stand for.
	Expanded int
	Depth    int
}

// Text is for a file or a body: an App, values, settings.
var Text = Limits{Bytes: 1 << 20, Values: 100_000, Aliases: 10_000, Expanded: 2 << 20, Depth: 100}

// LimitsFor is like Text for texts of up to so many bytes.
func LimitsFor(bytes int) Limits {
	l := Text
	l.Bytes, l.Expanded = bytes, max(l.Expanded, 2*bytes)
	return l
}

// What reading a text takes of memory, in bytes: for each value, and for each byte of the text.
const (
	perValue = 600
	perByte  = 6
)

// Memory returns what reading a text takes, in bytes, and to keep what was read.
func (l Limits) Memory(text []byte) int64 {
	return perValue*int64(min(Values(text), l.Values)) + perByte*int64(min(len(text), l.Bytes))
}

// Error describes what is wrong with a text. It quotes no values, which may be secret.
type Error struct {
	Line    int    // from 1; 0 for the text as a whole
	Field   string // that it is about, such as env[0].value, or empty
	Message string
	Unknown bool   // the value has no such field
	Limit   string // name of the limit that the text exceeds; empty when it is malformed
}

func (e *Error) Error() string {
	text := e.Message
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	if e.Line == 0 {
		return text
	}
	return fmt.Sprintf("line %d: %s", e.Line, text)
}

// Errors are several things that are wrong with a text.
type Errors []*Error

func (e Errors) Error() string {
	texts := make([]string, len(e))
	for i, one := range e {
		texts[i] = one.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap returns them for errors.As, which finds the first.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, one := range e {
		all[i] = one
	}
	return all
}

// Exceeded reports whether an error is about a limit, rather than about the form of a text.
func Exceeded(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Limit != ""
}

func (l Limits) tooLong() error {
	return &Error{Limit: "bytes", Message: fmt.Sprintf("the text has more than %d bytes: split it", l.Bytes)}
}

func (l Limits) tooMany() error {
	return &Error{Limit: "values", Message: fmt.Sprintf("there are more than %d lines, entries and levels: split the text", l.Values)}
}

func (l Limits) tooDeep(line int) error {
	return &Error{Line: line, Limit: "depth", Message: fmt.Sprintf("values are nested more than %d deep: flatten them", l.Depth)}
}

func (l Limits) tooExpanded(line int) error {
	return &Error{Line: line, Limit: "expansion", Message: fmt.Sprintf(
		"aliases (*NAME) stand for more than %d values or %d bytes: write the values out", l.Values, l.Expanded)}
}

func (l Limits) tooManyAliases() error {
	return &Error{Limit: "aliases", Message: fmt.Sprintf("there are more than %d aliases (*NAME): write the values out", l.Aliases)}
}
