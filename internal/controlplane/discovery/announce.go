package discovery

import (
	"context"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/webhook"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

// Announce is the only path of events. In the transaction of the change, it adds the event to the
// outbox, the timeline and the deliveries of webhooks. Nothing waits for the broker. event returns
// the event for its source and sequence.
func Announce(ctx context.Context, tx *store.Tx, agentID string, now time.Time, event func(source string, sequence uint64) (announce.Event, error)) error {
	at, err := tx.NextPosition(ctx, agentID, now)
	if err != nil {
		return err
	}
	e, err := event(announce.SourceOf(at.Installation, agentID), at.Sequence)
	if err != nil {
		return err
	}
	e.Previous = at.Previous
	if err := tx.Enqueue(ctx, e); err != nil || store.Hides(e) {
		return err
	}
	if err := tx.AddToTimeline(ctx, e); err != nil {
		return err
	}
	return webhook.Queue(ctx, tx, e, now)
}
