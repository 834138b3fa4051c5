package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/apps/payload"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

const (
	// commandInterval sends 50 commands a second, whether or not earlier ones were answered.
	commandInterval = 20 * time.Millisecond
	// turn is the duration of a turn, without or with a stalled reader.
	turn = 8 * time.Second
	// crowd is how many readers stall at once.
	crowd = 40
	// stalledBytes is how much a pod must have written until a stalled reader has filled everything
	// on the path: HTTP/2's windows of a client (16 MiB) and of the agent to the API server (4
	// MiB), which both have reduced, and buffers.
	stalledBytes = 24 << 20
	// stallTimeout is how long that may take.
	stallTimeout = time.Minute
)

// measureStalled sends commands while a pod floods its log, in turns without and with a reader that
// follows that log and has stopped reading.
func (b *streams) measureStalled(ctx context.Context) error {
	var alone, beside, all durations
	var ratios []float64
	if _, err := b.commands(ctx); err != nil { // warms up
		return err
	}
	for round := range b.Rounds {
		p99 := map[bool]time.Duration{}
		for i := range 2 {
			stalled := (round+i)%2 == 1
			took, err := b.turn(ctx, map[bool]int{true: 1}[stalled])
			if err != nil {
				return err
			}
			p99[stalled] = took.percentile(99)
			all = append(all, took...)
		}
		alone, beside = append(alone, p99[false]), append(beside, p99[true])
		ratios = append(ratios, float64(p99[true])/float64(p99[false]))
		b.say("round %d: p99 %s alone, %s beside a stalled reader", round+1, p99[false].Round(time.Millisecond/10), p99[true].Round(time.Millisecond/10))
	}
	b.set.Add("commands_p50", milliseconds(all.median()))
	b.set.Add("commands_p99", milliseconds(alone.median()))
	b.set.Add("commands_stalled_p99", milliseconds(beside.median()))
	b.set.Add("commands_stalled_ratio", medianOf(ratios))
	return nil
}

// turn returns how long commands take beside that many stalled readers.
func (b *streams) turn(ctx context.Context, stalled int) (durations, error) {
	if stalled == 0 {
		return b.commands(ctx)
	}
	end, err := b.stall(ctx, stalled)
	if err != nil {
		return nil, err
	}
	took, err := b.commands(ctx)
	if failed := end(); err == nil {
		err = failed
	}
	return took, err
}

// stall makes readers follow the log of the flooding pod and stop reading after the first line. It
// returns once nothing moves any more; end disconnects the readers.
func (b *streams) stall(ctx context.Context, readers int) (end func() error, err error) {
	reading, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	var early atomic.Pointer[error]
	for range readers {
		work.Go(func() {
			err := b.client.Apps().Logs(reading, floods, runnerapi.LogOptions{Follow: true, Tail: 1}, func(runnerapi.LogLine) error {
				<-reading.Done()
				return nil
			})
			if reading.Err() == nil {
				early.Store(&err)
			}
		})
	}
	end = func() error {
		cancel()
		work.Wait()
		if err := early.Load(); err != nil {
			return fmt.Errorf("a stalled reader's log ended: %w", *err)
		}
		return nil
	}
	if err := b.awaitFlooded(ctx); err != nil {
		return nil, errors.Join(err, end())
	}
	return end, nil
}

// measureCrowd makes a crowd stall at once. It checks whether commands are answered and what the
// agent needs.
func (b *streams) measureCrowd(ctx context.Context) error {
	samples := b.watchMemory(ctx)
	took, failed := b.turn(ctx, crowd)
	m, err := samples()
	if err != nil {
		return err
	}
	wrong := 0.0
	if failed != nil {
		wrong++
		b.say("%v", failed)
	}
	b.set.Add("crowd_failed", wrong)
	if len(took) > 0 {
		b.set.Add("crowd_p99", milliseconds(took.percentile(99)))
	}
	b.set.Add("crowd_memory_peak", mebibytes(highest(m.samples)))
	return b.neverRestarted(ctx)
}

// awaitFlooded waits until the flooding pod has written what fills all buffers.
func (b *streams) awaitFlooded(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stallTimeout)
	defer cancel()
	from, err := b.newest(ctx, floods)
	if err != nil {
		return err
	}
	return harness.Eventually(ctx, "all buffers are full", func(ctx context.Context) error {
		now, err := b.newest(ctx, floods)
		if written := (now - from) * b.Line; err == nil && written < stalledBytes {
			err = fmt.Errorf("%d MiB were written", written>>20)
		}
		return err
	})
}

// newest returns the number of the newest line that an App has logged.
func (b *streams) newest(ctx context.Context, key runnerapi.Key) (n int, err error) {
	err = b.client.Apps().Logs(ctx, key, runnerapi.LogOptions{Tail: 1}, func(l runnerapi.LogLine) error {
		n, err = payload.Number(l.Line, b.Line)
		return err
	})
	return n, err
}

// commands sends commands for a turn. The time of each counts from when it was due.
func (b *streams) commands(ctx context.Context) (durations, error) {
	var mu sync.Mutex
	var took durations
	group, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	for due := time.Duration(0); due < turn; due += commandInterval {
		if err := wait(ctx, time.Until(start.Add(due))); err != nil {
			break // the group has the reason
		}
		group.Go(func() error {
			err := b.command(ctx, int(due/commandInterval))
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(start.Add(due)))
			return err
		})
	}
	return took, group.Wait()
}

// command sends one of three commands, in turn: get an App, list all Apps, or read the end of a
// log. The last goes through the API server and the kubelet, as the stalled one does.
func (b *streams) command(ctx context.Context, i int) (err error) {
	switch i % 3 {
	case 0:
		_, err = b.client.Apps().Get(ctx, logs(i%b.Apps))
	case 1:
		_, err = b.client.Apps().List(ctx, streamsNamespace)
	default:
		_, err = b.newest(ctx, logs(i%b.Apps))
	}
	return err
}
