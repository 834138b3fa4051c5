package runnerapi

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestHedgesAreBounded to one in ten calls, and ten at once.
func TestHedgesAreBounded(t *testing.T) {
	var b hedgeBudget
	b.add(maxHedges * hedgeCost)
	taken := func() (n int) {
		for b.take() {
			n++
		}
		return n
	}
	assert.Equal(t, maxHedges, taken())
	for range 95 {
		b.earn()
	}
	assert.Equal(t, 9, taken())
	b.giveBack()
	assert.Equal(t, 1, taken(), "one that helped")
	for range 1000 {
		b.earn()
	}
	assert.Equal(t, maxHedges, taken(), "and no more are saved up")
}
