package harness

import (
	"context"
	"fmt"
	"time"
)

// pollInterval is how often Eventually looks where nothing can be watched.
const pollInterval = 50 * time.Millisecond

// Eventually waits until check returns nil. If ctx ends first, it returns the last error of check.
func Eventually(ctx context.Context, what string, check func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // an error caused by the end of ctx adds nothing
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, last)
		case <-ticker.C:
		}
	}
}
