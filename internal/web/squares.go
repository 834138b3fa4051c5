package web

import (
	"cmp"
	"slices"
)

// Square is one thing in component "squares".
type Square struct {
	Href, Text string // Text has the name and the state
	Tone       string // as Tone returns it
	Group      string
}

// SquareGroup is a group of squares, with its heading.
type SquareGroup struct {
	Name, Href string
	Squares    []Square
}

// GroupSquares returns squares in their groups, by name. Those without a group come last.
func GroupSquares(all []Square) []SquareGroup {
	byName := map[string][]Square{}
	for _, s := range all {
		byName[s.Group] = append(byName[s.Group], s)
	}
	groups := make([]SquareGroup, 0, len(byName))
	for name, squares := range byName {
		groups = append(groups, SquareGroup{Name: name, Squares: squares})
	}
	slices.SortFunc(groups, func(a, b SquareGroup) int {
		if (a.Name == "") != (b.Name == "") {
			return cmp.Compare(b.Name, a.Name)
		}
		return cmp.Compare(a.Name, b.Name)
	})
	return groups
}
