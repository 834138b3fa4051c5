package run

import (
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"time"
)

// Percentile returns the smallest of the values that at least the share q of them does not exceed
// (nearest rank); NaN of none.
func Percentile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// Median returns the middle of the values, or between the two that are; NaN of none.
func Median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	if n == 0 {
		return math.NaN()
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// Ratio returns the median, over the rounds, of the ratio of two values of the same round. The
// machine changes its speed from moment to moment: only values of the same moment compare.
func Ratio(of, to []float64) float64 {
	var ratios []float64
	for i := range min(len(of), len(to)) {
		ratios = append(ratios, of[i]/to[i])
	}
	return Median(ratios)
}

// Milliseconds returns a time in ms.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Mebibytes returns a size in MiB.
func Mebibytes(n int64) float64 { return float64(n) / (1 << 20) }

// failure is what Check ends a step with.
type failure struct{ error }

func (f failure) Unwrap() error { return f.error }

func fail(err error) {
	if err != nil {
		_, file, line, _ := runtime.Caller(2)
		panic(failure{fmt.Errorf("%s:%d: %w", filepath.Base(file), line, err)})
	}
}

// Check ends the step, or what Try calls, if there is an error. A benchmark has nothing else to do
// with one: each call that it makes is needed for a figure.
func Check(err error) { fail(err) }

// Must returns a value, or does with the error what Check does.
func Must[T any](value T, err error) T {
	fail(err)
	return value
}

// Failf is Check of a new error.
func Failf(format string, args ...any) { fail(fmt.Errorf(format, args...)) }

// Try returns the error that a function was ended with.
func Try(do func()) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	do()
	return nil
}
