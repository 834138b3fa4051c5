package rabbitmq

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
	// refusedPause is the longest pause while no process listens at the address. A retry then costs
	// no server anything, and waiting announcements go out soon after a broker is back.
	refusedPause = 300 * time.Millisecond
	// stablePeriod is how long a connection must last before pauses start over short.
	stablePeriod = 20 * time.Second
)

// NewBackoff returns the pauses between tries.
func NewBackoff() *backoff.ExponentialBackOff { return retry.Backoff(firstPause, maxPause) }

// nextPause returns the next pause, which depends on the error.
func nextPause(wait *backoff.ExponentialBackOff, err error) time.Duration {
	pause := wait.NextBackOff()
	if errors.Is(err, syscall.ECONNREFUSED) {
		wait.Reset()
		return min(pause, refusedPause)
	}
	return pause
}
