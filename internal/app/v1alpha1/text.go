package v1alpha1

import "github.com/pipeops/pipeops-vm-agent/internal/printable"

// maxText bounds foreign text in a message, so that neither an event nor an App with all waiting
// events is too large.
const maxText = 1000

// Bounded cuts a text that is too long.
func Bounded(s string) string { return printable.Shorten(s, maxText) }
