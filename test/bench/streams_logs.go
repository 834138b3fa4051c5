package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/apps/payload"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

const (
	// startTimeout is how long followed logs may take to bring their first line.
	startTimeout = time.Minute
	// endTimeout is how long to wait for an end.
	endTimeout = 30 * time.Second
	// idleTimeout is how long unused connections may stay.
	idleTimeout = 2 * time.Minute
	// idleGoroutines is how many goroutines idle connections may have: the bound.
	idleGoroutines = 10
)

// reader follows one log and looks at each line.
type reader struct {
	size      int
	lines     atomic.Int64
	last      int
	wrong     int   // lines that are missing, doubled or not as they were written
	complaint error // about the last of them
}

func (r *reader) take(l runnerapi.LogLine) error {
	n, changed := payload.Number(l.Line, r.size)
	if changed == nil && r.lines.Load() > 0 && n != r.last+1 {
		r.complaint = fmt.Errorf("pod %s: line %d comes after line %d", l.Pod, n, r.last)
		r.wrong++
	}
	if changed != nil {
		r.complaint = changed
		r.wrong++
		return nil //nolint:nilerr // it is counted, and the reader continues
	}
	r.last = n
	r.lines.Add(1)
	return nil
}

// followed are the logs that are followed at once.
type followed struct {
	readers []*reader
	ended   ends
	cancel  context.CancelFunc
	failed  atomic.Pointer[error] // a reader's that ended by itself
}

// follow makes readers follow the Apps' logs, in turn, and waits until each has lines.
func (b *streams) follow(ctx context.Context, apps, each int) *followed {
	reading, cancel := context.WithCancel(ctx)
	f := &followed{cancel: cancel, ended: make(ends, apps*each)}
	for i := range apps * each {
		r := &reader{size: b.Line}
		f.readers = append(f.readers, r)
		f.ended.note(func() {
			err := b.client.Apps().Logs(reading, logs(i%apps), runnerapi.LogOptions{Follow: true, Tail: 1}, r.take)
			if reading.Err() == nil {
				err = errors.Join(fmt.Errorf("the log of %s ended", logs(i%apps)), err)
				f.failed.Store(&err)
			}
		})
	}
	b.Await(ctx, startTimeout, tick, func() { f.check(2) })
	return f
}

// check fails where a reader has ended, or has not had as many lines.
func (f *followed) check(lines int64) {
	if err := f.failed.Load(); err != nil {
		run.Check(*err)
	}
	for i, r := range f.readers {
		if n := r.lines.Load(); n < lines {
			run.Failf("reader %d has %d lines", i, n)
		}
	}
}

func (f *followed) lines() (all int64) {
	for _, r := range f.readers {
		all += r.lines.Load()
	}
	return all
}

// measureLogs follows the logs of all Apps, and looks at each line that comes and at what the agent
// needs for it.
func (b *streams) measureLogs(ctx context.Context) {
	open, routines := b.number(ctx, callsOpen), b.number(ctx, goroutines)
	f := b.follow(ctx, b.Apps, b.Streams)
	ended := b.number(ctx, logsEnded, logsFailed)
	samples := b.watchMemory(ctx)
	run.Rest(ctx, time.Duration(b.Seconds)*time.Second)
	memory := samples()
	b.Add("logs_cut", b.number(ctx, logsEnded, logsFailed)-ended)
	f.check(int64(b.Seconds))
	b.Add("logs_memory_peak", slices.Max(memory))
	b.Add("logs_memory_growth", growth(memory))
	went := time.Now()
	f.cancel()
	f.ended.after(ctx, went)
	b.awaitNumber(ctx, endTimeout, callsOpen, open)
	b.Add("logs_closed", run.Milliseconds(time.Since(went)))
	b.client.Close()
	b.Add("logs_goroutines", b.awaitNumber(ctx, idleTimeout, goroutines, routines+idleGoroutines)-routines)
	wrong := 0
	for _, r := range f.readers {
		wrong += r.wrong
		if r.complaint != nil {
			b.Say("%v", r.complaint)
		}
	}
	b.Add("logs_lines", float64(f.lines()))
	b.Add("logs_megabytes", float64(f.lines())*float64(b.Line)/1e6/float64(b.Seconds))
	b.Add("logs_wrong", float64(wrong))
	b.neverRestarted(ctx)
}

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
func (b *streams) measureStalled(ctx context.Context) {
	var all []float64
	p99 := map[int][]float64{} // by stalled readers
	b.commands(ctx)            // warms up
	b.InRounds(b.Rounds, func(round int) {
		for _, stalled := range run.Turns([]int{0, 1}, round) {
			took := b.turn(ctx, stalled)
			p99[stalled] = append(p99[stalled], run.Percentile(took, 0.99))
			all = append(all, took...)
		}
	})
	b.Add("commands_p50", run.Median(all))
	b.Add("commands_p99", run.Median(p99[0]))
	b.Add("commands_stalled_p99", run.Median(p99[1]))
	b.Add("commands_stalled_ratio", run.Ratio(p99[1], p99[0]))
}

// turn returns how long commands take beside readers that follow the log of the flooding pod and
// have stopped reading after the first line. The commands begin once nothing moves any more.
func (b *streams) turn(ctx context.Context, stalled int) []float64 {
	reading, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	var early atomic.Pointer[error]
	leave := func() { cancel(); work.Wait() }
	defer leave()
	for range stalled {
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
	if stalled > 0 {
		from := b.newest(ctx, floods)
		b.Await(ctx, stallTimeout, tick, func() {
			if written := (b.newest(ctx, floods) - from) * b.Line; written < stalledBytes {
				run.Failf("%d MiB were written, which do not fill all buffers", written>>20)
			}
		})
	}
	took := b.commands(ctx)
	leave()
	if err := early.Load(); err != nil {
		run.Failf("a stalled reader's log ended: %w", *err)
	}
	return took
}

// measureCrowd makes a crowd stall at once. It checks whether commands are answered and what the
// agent needs.
func (b *streams) measureCrowd(ctx context.Context) {
	samples := b.watchMemory(ctx)
	b.Add("crowd_p99", run.Percentile(b.turn(ctx, crowd), 0.99))
	b.Add("crowd_memory_peak", slices.Max(samples()))
	b.neverRestarted(ctx)
}

// newest returns the number of the newest line that an App has logged.
func (b *streams) newest(ctx context.Context, key runnerapi.Key) (n int) {
	run.Check(b.client.Apps().Logs(ctx, key, runnerapi.LogOptions{Tail: 1}, func(l runnerapi.LogLine) (err error) {
		n, err = payload.Number(l.Line, b.Line)
		return err
	}))
	return n
}

// commands sends commands for a turn: get an App, list all Apps, or read the end of a log, which
// goes through the API server and the kubelet, as the stalled one does. The time of each counts
// from when it was due.
func (b *streams) commands(ctx context.Context) (took []float64) {
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	start := time.Now()
	for i := range int(turn / commandInterval) {
		due := start.Add(time.Duration(i) * commandInterval)
		if run.Try(func() { run.Rest(ctx, time.Until(due)) }) != nil {
			break // the group has the reason
		}
		group.Go(func() error {
			return run.Try(func() {
				switch app := logs(i % b.Apps); i % 3 {
				case 0:
					run.Must(b.client.Apps().Get(ctx, app))
				case 1:
					run.Must(b.client.Apps().List(ctx, streamsNamespace))
				default:
					b.newest(ctx, app)
				}
				mu.Lock()
				defer mu.Unlock()
				took = append(took, run.Milliseconds(time.Since(due)))
			})
		})
	}
	run.Check(group.Wait())
	return took
}
