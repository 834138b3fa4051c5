package server

import (
	"errors"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

// parseSince reads a duration ("10m") or a point in time (RFC 3339).
func parseSince(s string, now time.Time) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	if d, err := time.ParseDuration(s); err == nil {
		if d <= 0 {
			return 0, errors.New("must be more than nothing")
		}
		return d, nil
	}
	at, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return 0, fmt.Errorf("%q is neither a duration such as 10m nor a time such as 2026-01-02T15:04:05Z", printable.Clip(s))
	}
	return max(now.Sub(at), time.Second), nil
}
