package server

import (
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/moment"
)

// parseSince returns how long before now a duration ("10m") or a time (RFC 3339) begins.
func parseSince(s string, now time.Time) (time.Duration, error) {
	if s == "" {
		return 0, nil
	}
	at, err := moment.Parse(s, now)
	if err != nil {
		return 0, err
	}
	return max(now.Sub(at), time.Second), nil
}
