// Package load puts a load on an HTTP server and measures how it is carried: closed loops of
// clients, bulk transfers, and a line of a given delay between the two. It does not depend on what
// is between client and server.
package load

import (
	"math"
	"slices"
	"time"
)

// Percentile returns the smallest of the values that at least the share q of them does not exceed
// (nearest rank). The values must be sorted; without values it returns 0.
func Percentile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Median returns the middle of the values, or between the two that are; NaN of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
