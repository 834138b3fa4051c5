package problem

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// FieldPattern is the form of every field, on every wire: the pattern of Error.Field.
const FieldPattern = `^[A-Za-z0-9_$~*%/-]+(\.[A-Za-z0-9_$~*%/-]*|\[[0-9]+\])*$`

var (
	formed = regexp.MustCompile(FieldPattern)
	// byKey is how Kubernetes writes the value of a map's key.
	byKey   = regexp.MustCompile(`\[([^\]]*[^\]0-9][^\]]*)\]`)
	foreign = regexp.MustCompile(`[^A-Za-z0-9_$~*/.-]`)
	whole   = regexp.MustCompile(`(?s)^(.*?)(\[[0-9]+\])*$`)
)

// Field gives the path of a field its form: names and keys with dots between, [N] for the items of
// lists. What the form has no character for, such as a space in a key, is percent-encoded.
func Field(path string) string {
	if path = strings.TrimRight(path, "."); path == "" || formed.MatchString(path) {
		return path
	}
	path = byKey.ReplaceAllString(path, ".$1")
	parts := strings.Split(path, ".")
	for i, part := range parts {
		name := whole.FindStringSubmatch(part)[1]
		parts[i] = encoded(name) + part[len(name):]
	}
	path = strings.TrimRight(strings.Join(parts, "."), ".")
	if !formed.MatchString(path) { // an item of nothing, or no name at all
		return "body" + path
	}
	return path
}

func encoded(name string) string {
	return foreign.ReplaceAllStringFunc(name, func(s string) string {
		var out strings.Builder
		for _, b := range []byte(s) {
			_, _ = fmt.Fprintf(&out, "%%%02X", b) // a Builder takes all
		}
		return out.String()
	})
}

// FieldError is one field at fault.
type FieldError struct {
	Field    string `json:"field" doc:"As in the problem's own field." pattern:"^[A-Za-z0-9_$~*%/-]+(\\.[A-Za-z0-9_$~*%/-]*|\\[[0-9]+\\])*$" example:"ports[0].port"`
	Location string `json:"location,omitempty" doc:"As the problem's own location."`
	Message  string `json:"message"`
}

// String returns the mistake on one line.
func (f FieldError) String() string { return placed(cmp.Or(f.Location, f.Field), f.Message) }

// placed puts the place of a mistake before its description, unless that already contains it.
func placed(at, what string) string {
	if at == "" || strings.HasPrefix(what, at+": ") {
		return what
	}
	return at + ": " + what
}

// AsField returns the problem as one of several fields at fault.
func (e *Error) AsField() FieldError {
	return FieldError{Field: cmp.Or(e.Field, "body"), Location: e.Location, Message: e.Detail}
}

// Placed returns the detail after the field at fault, or after its place, if there is one.
func (e *Error) Placed() string {
	return FieldError{Field: e.Field, Location: e.Location, Message: e.Detail}.String()
}

// WithField names the field at fault.
func (e *Error) WithField(path string) *Error { e.Field = Field(path); return e }

// WithLocation sets the place of the field in a text of several documents. The detail begins with
// it, for readers of the detail alone.
func (e *Error) WithLocation(at string) *Error {
	e.Location, e.Detail = at, placed(at, e.Detail)
	return e
}
