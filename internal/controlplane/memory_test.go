package controlplane

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
		{"a first collection", func() { g.came(25) }, restPercent},
		{"a second before it was looked", func() { g.came(26) }, 50},
		{"a third", func() { g.came(27) }, 50},
		{"rest after the burst", func() { g.look(27); g.look(27) }, restPercent},
		{"the end", g.end, 50},
	} {
		step.do()
		assert.Equal(t, step.want, percent, step.name)
	}
}

func TestEachCollectionIsSaid(t *testing.T) {
	collected, stop := watchCollections()
	for range 3 {
		said := func() bool {
			runtime.GC()
			select {
			case <-collected:
				return true
			default:
				return false
			}
		}
		require.Eventually(t, said, 10*time.Second, time.Millisecond)
	}
	stop()
}
