package outbox

import (
	"context"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/retry"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// patient makes an event wait for as long as the database is away. The consumer gives up after half
// a minute and dead-letters, which is for invalid events. Without patient, an event that came
// during a restart of the database would be missing from the timeline for good. Later events wait
// in the broker.
func patient(handle announce.Handler) announce.Handler {
	return func(ctx context.Context, e announce.Event) error {
		for failures := 1; ; failures++ {
			err := handle(ctx, e)
			if !store.Away(err) || ctx.Err() != nil {
				return err
			}
			retry.Wait(ctx, retry.After(time.Second, longestRetry, failures))
		}
	}
}
