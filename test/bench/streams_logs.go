package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/apps/payload"
	"github.com/pipeops/pipeops-vm-agent/test/bench/figures"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

const (
	// startTimeout is how long followed logs may take to bring their first line.
	startTimeout = time.Minute
	// endTimeout is how long to wait for an end.
	endTimeout = 30 * time.Second
	// idleTimeout is how long unused connections may stay.
	idleTimeout = 2 * time.Minute
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
		return nil
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
	told := b.Every(time.Minute/2, func() { b.Say("%d lines so far", f.lines()) })
	samples := b.watchMemory(ctx)
	run.Rest(ctx, time.Duration(b.Seconds)*time.Second)
	memory := samples()
	told()
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
	b.Add("logs_goroutines", b.awaitNumber(ctx, idleTimeout, goroutines, routines+figures.IdleGoroutines)-routines)
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
