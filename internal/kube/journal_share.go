package kube

import (
	"maps"
	"math"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// kept is a record of the journal, as a sweep sees it.
type kept struct {
	name   string
	uid    types.UID
	runner string
	at     time.Time
}

// surplus returns the records from before the time since, and the oldest of each Runner past its
// share of size. One Runner that sends many commands does not push out those of another.
func surplus(all []kept, size int, since time.Time) []kept {
	slices.SortFunc(all, func(a, b kept) int { return a.at.Compare(b.at) })
	young, _ := slices.BinarySearchFunc(all, since, func(r kept, t time.Time) int { return r.at.Compare(t) })
	out := all[:young:young]
	counts := map[string]int{}
	for _, r := range all[young:] {
		counts[r.runner]++
	}
	share := fairShare(slices.Collect(maps.Values(counts)), size)
	for _, r := range all[young:] {
		if counts[r.runner] > share {
			counts[r.runner]--
			out = append(out, r)
		}
	}
	return out
}

// fairShare returns the largest bound with which the counts add up to no more than size. What a
// Runner leaves of an equal share, the others have.
func fairShare(counts []int, size int) int {
	slices.Sort(counts)
	for i, n := range counts {
		if equal := size / (len(counts) - i); n > equal {
			return equal
		}
		size -= n
	}
	return math.MaxInt
}
