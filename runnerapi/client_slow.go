package runnerapi

import (
	"context"
	"sync"
	"time"
)

// slowEvery is after how long a call is told of that is not answered, and how often then.
const slowEvery = time.Second

// Slow is a call whose answer has not begun yet.
type Slow struct {
	// Call is its ID in the table of calls.
	Call string
	// Took is for how long.
	Took time.Duration
	// Last is why the last try failed; nil while the first is under way.
	Last error
	// Answered ends what is told of this call.
	Answered bool
}

// tellSlow tells who wants to know it of a call that takes long, until answered is called.
// Reads that were asked to wait are not slow, they wait: of those it is told that the agent
// cannot be reached.
func (c *Client) tellSlow(ctx context.Context, t *try, call string, waits bool) (answered func()) {
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
