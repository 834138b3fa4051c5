// Package dialrace connects to one of several addresses, or by one of several transports. It tries
// each when those before it have failed or take long, and the first that works wins (RFC 8305).
package dialrace

import (
	"context"
	"time"
)

// Race is how attempts follow each other.
type Race[T any] struct {
	// Patience is how long an attempt may take until the next one begins beside it.
	Patience time.Duration
	// Next returns the next attempt, nil while there is none: it is asked again later. It is
	// called by the goroutine that calls Run.
	Next func() func(context.Context) (T, error)
	// Final reports whether an error ends the race, since other attempts would do no better; nil
	// for none.
	Final func(error) bool
	// Close closes what was won too late.
	Close func(T)
}

type result[T any] struct {
	won T
	err error
}

// Run returns the result of the first attempt that works, and the errors of earlier attempts in the
// order of failure. All attempts have ended when it returns: Run cancels their context.
func (r Race[T]) Run(ctx context.Context) (won T, failed []error) {
	ctx, cancel := context.WithCancel(ctx)
	results, running := make(chan result[T]), 0
	defer func() {
		cancel()
		for ; running > 0; running-- {
			if late := <-results; late.err == nil {
				r.Close(late.won)
			}
		}
	}()
	start := func() {
		if attempt := r.Next(); attempt != nil {
			running++
			go func() {
				won, err := attempt(ctx)
				results <- result[T]{won, err}
			}()
		}
	}
	start()
	next := time.NewTicker(r.Patience)
	defer next.Stop()
	for running > 0 {
		select {
		case <-next.C:
			start()
		case got := <-results:
			running--
			if got.err == nil {
				return got.won, failed
			}
			failed = append(failed, got.err)
			if ctx.Err() != nil || r.Final != nil && r.Final(got.err) {
				return won, failed
			}
			start()
			next.Reset(r.Patience)
		}
	}
	return won, failed
}
