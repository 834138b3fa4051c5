package tunnel

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/retry"
)

// stable is how long a connection must have lived for the waits to start over.
const stable = 30 * time.Second

// Run keeps the tunnel up until ctx ends, then closes it in an orderly way, joins its
// goroutines and returns nil. It returns early, with an *Error whose Final is true, only
// if the server refuses this agent for good. It may be called again afterwards, but not
// twice at a time.
func (t *Tunnel) Run(ctx context.Context) error {
	waits := retry.Backoff(t.cfg.Backoff.Initial, t.cfg.Backoff.Max)
	for !t.draining.Load() {
		t.status.set(Connecting, nil)
		started := time.Now()
		err := t.session(ctx)
		if IsFinal(err) {
			t.status.set(Refused, err)
			return err
		}
		if t.Status().Phase == Connected && time.Since(started) >= stable {
			waits.Reset()
		}
		if errors.Is(err, errBetterTransport) && ctx.Err() == nil {
			continue
		}
		wait := waits.NextBackOff()
		if spread := spreadOf(err); spread > 0 {
			wait = rand.N(spread) //nolint:gosec // spreading load needs no secrecy
		}
		if t.draining.Load() || !t.pause(ctx, wait, err) {
			break
		}
	}
	t.status.set(Stopped, nil)
	<-ctx.Done() // if it was drained, the connection has ended before
	return nil
}

// pause waits before the next attempt, and reports whether there shall be one.
func (t *Tunnel) pause(ctx context.Context, wait time.Duration, err error) bool {
	select {
	case <-ctx.Done():
		return false
	default:
	}
	t.status.set(Waiting, err)
	t.cfg.Log.Warn().Err(err).Dur("retry_in", wait).Msg("tunnel is down")
	return retry.Wait(ctx, wait)
}
