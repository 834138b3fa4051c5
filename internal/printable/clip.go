package printable

import "strings"

// clipped bounds foreign text that an error quotes, in bytes.
const clipped = 64

// Clip returns the beginning of foreign text, short enough to be quoted in an error.
func Clip(s string) string { return Shorten(s, clipped) }

// Shorten returns at most that many bytes of a text, and an ellipsis where it has more.
func Shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
