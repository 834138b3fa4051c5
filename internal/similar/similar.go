// Package similar finds the names that a misspelled one may mean.
package similar

import (
	"cmp"
	"slices"
)

const (
	// maxLength bounds what is compared, in bytes: the time grows with the length of both.
	maxLength = 64
	// edits is how many letters of a misspelled name may differ.
	edits = 2
)

// Sorted returns the names, the most similar first.
func Sorted(asked string, names []string) []string {
	sorted := slices.Clone(names)
	if len(asked) > maxLength {
		return sorted
	}
	far := make(map[string]int, len(names))
	for _, name := range names {
		far[name] = distance(asked, name)
	}
	slices.SortStableFunc(sorted, func(a, b string) int { return cmp.Compare(far[a], far[b]) })
	return sorted
}

// Nearest returns the name that was meant; empty if none is similar enough.
func Nearest(asked string, names []string) string {
	sorted := Sorted(asked, names)
	if len(sorted) == 0 || len(asked) > maxLength {
		return ""
	}
	if d := distance(asked, sorted[0]); d > edits || d >= len(asked) {
		return ""
	}
	return sorted[0]
}

// distance returns how many letters must change to make a into b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
