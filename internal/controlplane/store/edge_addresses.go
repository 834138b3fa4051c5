package store

import (
	"slices"
	"strings"
)

// edgeSeparator separates several edges in one text.
const edgeSeparator = ","

// JoinEdges returns the addresses at which control planes accept Runners as they are stored:
// sorted, each once.
func JoinEdges(edges []string) string {
	return strings.Join(slices.Compact(slices.Sorted(slices.Values(edges))), edgeSeparator)
}

// SplitEdges returns the addresses that JoinEdges joined.
func SplitEdges(text string) []string { return strings.Split(text, edgeSeparator) }
