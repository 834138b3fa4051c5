package kubeproblem

import (
	"regexp"
	"strings"
)

var goValue = regexp.MustCompile(`(?m), got &.*$`)

// Mistyped returns which fields of an applied object do not fit its kind, or an empty string for
// another error. The API server calls that an error of its own (500), and prints Go values.
func Mistyped(err error) string {
	_, fields, found := strings.Cut(err.Error(), "failed to create typed patch object (")
	if !found {
		return ""
	}
	if _, after, cut := strings.Cut(fields, "): "); cut {
		fields = after
	}
	var all []string
	for line := range strings.Lines(goValue.ReplaceAllString(strings.TrimPrefix(fields, "errors:"), "")) {
		if line = strings.TrimPrefix(strings.TrimSpace(line), "."); line != "" {
			all = append(all, line)
		}
	}
	return strings.Join(all, "; ")
}
