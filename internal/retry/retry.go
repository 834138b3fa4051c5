// Package retry computes how long to wait before a retry, and waits.
package retry

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Wait waits, and reports whether that time has passed before the context ended.
func Wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// Backoff returns waits that double, from about the first to about the longest. Each has jitter, so
// that thousands of clients do not return at the same moment. It is not for several goroutines.
func Backoff(first, longest time.Duration) *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{InitialInterval: first, MaxInterval: longest, Multiplier: 2, RandomizationFactor: 0.5}
}

// After returns the wait after so many failures, one at least, where these are counted elsewhere.
func After(first, longest time.Duration, failures int) time.Duration {
	for ; failures > 1 && first < longest; failures-- {
		first *= 2
	}
	ceiling := min(first, longest)
	return ceiling - rand.N(ceiling/2+1) //nolint:gosec // spreading load needs no secrecy
}

// Jitter returns something between three quarters of d and d.
func Jitter(d time.Duration) time.Duration {
	return d - rand.N(d/4+1) //nolint:gosec // spreading load needs no secrecy
}

// Header returns the wait in a header Retry-After, which has seconds or a date: at most the given
// time, and 0 if there is none.
func Header(text string, now time.Time, most time.Duration) time.Duration {
	if s, err := strconv.ParseUint(text, 10, 31); err == nil {
		return min(time.Duration(s)*time.Second, most)
	}
	if at, err := http.ParseTime(text); err == nil {
		return min(max(at.Sub(now), 0), most)
	}
	return 0
}

// UnlessDone returns the error of work, or nil if the work was asked to end.
func UnlessDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // that is the point
	}
	return err
}
