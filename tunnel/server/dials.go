package server

import "context"

// dials bounds a session's dials in progress. Once it is shut, no dial begins any more.
type dials struct {
	places   chan struct{}   // one place per dial in progress
	draining chan struct{}   // closed when it is shut
	over     <-chan struct{} // closed when the session is over
}

func newDials(limit int, over <-chan struct{}) dials {
	return dials{make(chan struct{}, limit), make(chan struct{}), over}
}

// enter waits for a place, which leave gives back.
func (d dials) enter(ctx context.Context) error {
	select {
	case d.places <- struct{}{}:
	case <-d.draining:
		return ErrNotConnected
	case <-d.over:
		return ErrNotConnected
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-d.draining:
		d.leave()
		return ErrNotConnected
	default:
		return nil
	}
}

func (d dials) leave() { <-d.places }

// shut must be called at most once.
func (d dials) shut() { close(d.draining) }

// wait takes all places, and with each waits for the dial that had it.
func (d dials) wait(ctx context.Context) {
	for range cap(d.places) {
		select {
		case d.places <- struct{}{}:
		case <-d.over:
			return
		case <-ctx.Done():
			return
		}
	}
}
