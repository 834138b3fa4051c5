package main

import (
	"slices"
	"time"
)

// durations are measurements of one thing.
type durations []time.Duration

// percentile returns the nearest-rank percentile: the smallest of the measurements that at least p
// of a hundred do not exceed.
func (d durations) percentile(p int) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	rank := (p*len(sorted) + 99) / 100
	return sorted[max(rank, 1)-1]
}

func (d durations) median() time.Duration { return d.percentile(50) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// medianOf returns the lower one of the two in the middle where there are two.
func medianOf(ratios []float64) float64 {
	return slices.Sorted(slices.Values(ratios))[(len(ratios)-1)/2]
}
