package agent

import (
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// newBackoff grows the wait between tries from one second to thirty.
func newBackoff() *backoff.ExponentialBackOff { return retry.Backoff(time.Second, 30*time.Second) }
