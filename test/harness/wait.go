package harness

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// pollInterval is how often Eventually looks where nothing can be watched.
const pollInterval = 50 * time.Millisecond

// Eventually waits until check returns nil. If ctx ends first, it returns the last error of check.
func Eventually(ctx context.Context, what string, check func(context.Context) error) error {
	var last error
	if wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		err := check(ctx)
		if last == nil || ctx.Err() == nil { // an error caused by the end of ctx adds nothing
			last = err
		}
		return err == nil, nil
	}) != nil {
		return fmt.Errorf("waiting until %s: %w", what, last)
	}
	return nil
}
