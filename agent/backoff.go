package agent

import (
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// newBackoff grows the wait between tries from one second to thirty. Its jitter
// keeps thousands of agents from coming back at the same moment.
func newBackoff() *backoff.ExponentialBackOff {
	return &backoff.ExponentialBackOff{
		InitialInterval: time.Second, MaxInterval: 30 * time.Second, Multiplier: 2, RandomizationFactor: 0.25,
	}
}

// jitter answers something between three quarters of d and d.
func jitter(d time.Duration) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/4+1)) //nolint:gosec // spreads load, guards nothing
}
