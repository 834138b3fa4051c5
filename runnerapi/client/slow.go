package client

import (
	"context"
	"sync"
	"time"
)

// slowEvery is the delay before the first report about a call without an answer, and the interval
// of further reports.
const slowEvery = time.Second

// Slow is a call whose answer has not begun yet.
type Slow struct {
	// Call is its ID in the table of calls.
	Call string
	// Took is for how long.
	Took time.Duration
	// Last is why the last try failed; nil while the first is in progress.
	Last error
	// Answered marks the last report about this call.
	Answered bool
}

// tellSlow reports a call that takes long, until answered is called. A read that was asked to wait
// is not slow: it is reported only if the agent cannot be reached.
func (c *core) tellSlow(ctx context.Context, t *try, call string, waits bool) (answered func()) {
	if c.config.Slow == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() {
		tick := time.NewTicker(slowEvery)
		defer tick.Stop()
		slow, begun, told := Slow{Call: call}, time.Now(), false
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				if slow.Answered = true; told {
					c.config.Slow(slow)
				}
				return
			}
			slow.Took, slow.Last = time.Since(begun), t.why()
			if waits && slow.Last == nil {
				continue
			}
			told = true
			c.config.Slow(slow)
		}
	})
	return func() {
		cancel()
		telling.Wait()
	}
}
