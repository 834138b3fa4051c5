package main

import (
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// heartbeat is how often a long step reports its progress.
	heartbeat = 10 * time.Second
	// workers is how many things are made at a time.
	workers = 8
)

// progress reports the current step.
type progress struct {
	out   io.Writer
	start time.Time
	steps int
}

func (p *progress) say(format string, args ...any) { fmt.Fprintf(p.out, "   "+format+"\n", args...) }

func (p *progress) step(title string, do func() error) error {
	p.steps++
	fmt.Fprintf(p.out, "== %d. %s  (at %s)\n", p.steps, title, time.Since(p.start).Round(time.Second))
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", title, err)
	}
	return nil
}

// stage is a step of a run.
type stage struct {
	title string
	do    func(context.Context) error
}

// all does one after the other, up to the first that fails.
func (p *progress) all(ctx context.Context, stages []stage) error {
	for _, s := range stages {
		if err := p.step(s.title, func() error { return s.do(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

// each calls a function with the numbers below n, several at a time, and reports at intervals how
// many are done.
func (p *progress) each(ctx context.Context, n int, what string, do func(context.Context, int) error) error {
	var done atomic.Int64
	stop := p.every(heartbeat, func() { p.say("%d of %d %s", done.Load(), n, what) })
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(workers)
	for i := range n {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			defer done.Add(1)
			return do(ctx, i)
		})
	}
	return group.Wait()
}

// every calls tell at intervals until stop is called. The function stop waits for the last call.
func (p *progress) every(interval time.Duration, tell func()) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				tell()
			case <-end:
				return
			}
		}
	}()
	return func() { close(end); <-ended }
}
