package harness

import (
	"context"
	"fmt"
	"time"
)

// pollInterval is how often Eventually looks where nothing can be watched.
const pollInterval = 50 * time.Millisecond

// Eventually waits until check answers nil. When ctx ends first, the error is
// the last one that check answered before.
func Eventually(ctx context.Context, what string, check func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil { // one that ctx has ended says nothing
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, last)
		case <-ticker.C:
		}
	}
}
