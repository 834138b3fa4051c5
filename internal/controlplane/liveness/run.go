package liveness

import (
	"context"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/controlplane/store"
)

// Keep writes heartbeats until the context ends, if a Shared decides which agents are online.
func (l *Liveness) Keep(ctx context.Context) error {
	flush := time.NewTicker(l.flushEvery)
	defer flush.Stop()
	for {
		select {
		case <-ctx.Done():
			return l.last(ctx)
		case <-flush.C:
			l.flushOrSay(ctx)
		}
	}
}

// last writes what there is when we stop.
func (l *Liveness) last(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), store.Timeout)
	defer cancel()
	return l.Flush(ctx)
}

func (l *Liveness) flushOrSay(ctx context.Context) {
	if err := l.Flush(ctx); err != nil && ctx.Err() == nil {
		l.log.Error().Err(err).Msg("failed to write heartbeats; retrying")
	}
}

// Run decides until the context ends, and then writes what it has.
func (l *Liveness) Run(ctx context.Context) error {
	look, flush := time.NewTicker(lookEvery), time.NewTicker(l.flushEvery)
	defer look.Stop()
	defer flush.Stop()
	gathered := time.NewTimer(GatherFor)
	defer gathered.Stop()
	wake := l.wake // nil while they gather
	for {
		select {
		case <-ctx.Done():
			return l.last(ctx)
		case <-wake:
			l.look(ctx)
			wake = nil
			gathered.Reset(GatherFor)
		case <-gathered.C:
			wake = l.wake
		case <-look.C:
			l.look(ctx)
		case <-flush.C:
			l.flushOrSay(ctx)
		}
	}
}

// Unwritten returns why the last heartbeats could not be written; nil if they were.
func (l *Liveness) Unwritten() error {
	if err := l.unwritten.Load(); err != nil {
		return *err
	}
	return nil
}

// Flush writes the heartbeats since the last time.
func (l *Liveness) Flush(ctx context.Context) error {
	var beats []store.Beat
	l.mu.Lock()
	for id, v := range l.agents {
		if v.unsaved {
			beats = append(beats, store.Beat{AgentID: id, At: v.lastBeat, Capacity: v.capacity})
			v.unsaved = false
		}
	}
	l.mu.Unlock()
	if len(beats) == 0 {
		return nil
	}
	err := l.store.UpdateQuietly(ctx, func(tx *store.Tx) error { return tx.SaveBeats(ctx, beats) })
	l.unwritten.Store(&err)
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, b := range beats {
			if v, ok := l.agents[b.AgentID]; ok {
				v.unsaved = true
			}
		}
	}
	return err
}
