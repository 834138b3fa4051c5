package announce

import (
	"context"
	"errors"
	"math/rand/v2"
	"syscall"
	"time"
)

const (
	firstPause = 200 * time.Millisecond
	maxPause   = 5 * time.Second
	// refusedPause is the most while nobody listens at the address: asking again costs
	// whoever is not there nothing, and what waits goes out soon after a broker is back.
	refusedPause = 300 * time.Millisecond
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

// after is the next pause, by what went wrong.
func (b *backoff) after(err error) time.Duration {
	if errors.Is(err, syscall.ECONNREFUSED) {
		b.pause = min(b.pause, refusedPause)
	}
	return b.next()
}

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
