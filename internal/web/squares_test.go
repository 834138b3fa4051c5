package web

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestGroupSquares(t *testing.T) {
	assert.Empty(t, GroupSquares(nil))
	var names []string
	groups := GroupSquares([]Square{{Text: "z", Group: "b"}, {Text: "y"}, {Text: "x", Group: "a"}, {Text: "a", Group: "b"}})
	for _, g := range groups {
		names = append(names, g.Name)
	}
	assert.Equal(t, []string{"a", "b", ""}, names)
	assert.Equal(t, []Square{{Text: "z", Group: "b"}, {Text: "a", Group: "b"}}, groups[1].Squares, "their order stays")
}
