package controlplane

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAStormIsOverWhenHardlyAnybodyComes(t *testing.T) {
	var s storm
	for _, step := range []struct {
		logins uint64
		over   bool
	}{{100, false}, {100, false}, {5000, false}, {9000, false}, {9100, true}, {9100, false}, {9299, false}, {9299, false}, {9300, true}} {
		assert.Equal(t, step.over, s.over(step.logins), "%d logins", step.logins)
	}
}

// TestCollectionsAreAsOftenAsTheyAreCheap goes through rest and busy times.
func TestCollectionsAreAsOftenAsTheyAreCheap(t *testing.T) {
	percent := 50
	g := &collector{first: 50, now: 50, set: func(p int) (before int) {
		before, percent = percent, p
		return before
	}}
	for _, step := range []struct {
		name string
		do   func()
		want int
	}{
		{"a busy start", func() { g.look(20) }, 50},
		{"rest", func() { g.look(21) }, restPercent},
		{"more rest", func() { g.look(21) }, restPercent},
		{"busy again", func() { g.look(23) }, 50},
		{"rest at the end", func() { g.look(24) }, restPercent},
		{"the end", g.end, 50},
	} {
		step.do()
		assert.Equal(t, step.want, percent, step.name)
	}
}
