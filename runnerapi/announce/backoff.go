package announce

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstPause = 200 * time.Millisecond
	maxPause   = 5 * time.Second
	// stablePeriod is how long a connection must have lasted to start over with
	// short pauses.
	stablePeriod = 20 * time.Second
)

// backoff doubles the pause up to a maximum, with jitter at every step: when a
// broker comes back, not everybody comes at once.
type backoff struct {
	pause, most time.Duration
}

func newBackoff() *backoff { return &backoff{pause: firstPause, most: maxPause} }

func (b *backoff) reset() { b.pause = firstPause }

func (b *backoff) next() time.Duration {
	pause := b.pause
	b.pause = min(2*b.pause, b.most)
	return pause/2 + rand.N(pause) // #nosec G404 -- jitter is no secret
}

// sleep waits, or not so long if the context ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
