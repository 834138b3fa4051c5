package announce

import (
	"errors"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

const (
	firstPause = 200 * time.Millisecond
	maxPause   = 5 * time.Second
	// refusedPause is the most while nobody listens at the address: asking again costs
	// whoever is not there nothing, and what waits goes out soon after a broker is back.
	refusedPause = 300 * time.Millisecond
	// stablePeriod is how long a connection must have lasted to start over with
	// short pauses.
	stablePeriod = 20 * time.Second
)

func newBackoff() *backoff.ExponentialBackOff { return retry.Backoff(firstPause, maxPause) }

// nextPause is the next pause, by what went wrong.
func nextPause(wait *backoff.ExponentialBackOff, err error) time.Duration {
	pause := wait.NextBackOff()
	if errors.Is(err, syscall.ECONNREFUSED) {
		wait.Reset()
		return min(pause, refusedPause)
	}
	return pause
}
