package v1alpha1

import "strings"

// maxText bounds foreign text in a message, so that neither an event nor an App with all waiting
// events is too large.
const maxText = 1000

// Bounded cuts a text that is too long.
func Bounded(s string) string {
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}
