package runnerapi

import (
	"maps"
	"slices"
	"strings"
)

// clip keeps foreign text that is quoted in an error short.
func clip(s string) string { return shorten(s, 64) }

// shorten keeps at most that many bytes.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}

// count returns how many of the conditions hold.
func count(conditions ...bool) int {
	n := 0
	for _, c := range conditions {
		if c {
			n++
		}
	}
	return n
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
