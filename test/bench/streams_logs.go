package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/apps/payload"
	"github.com/pipeops/pipeops-vm-agent/test/bench/figures"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

const (
	// startTimeout is how long followed logs may take to bring their first line.
	startTimeout = time.Minute
)

// reader follows one log and looks at each line.
type reader struct {
	size        int
	lines       atomic.Int64
	first, last int
	wrong       int   // lines that are missing, doubled or not as they were written
	complaint   error // about the first of them
}

func (r *reader) take(l runnerapi.LogLine) error {
	n, err := payload.Number(l.Line, r.size)
	switch {
	case err != nil:
		r.complain(err)
		return nil
	case r.lines.Load() == 0:
		r.first = n
	case n != r.last+1:
		r.complain(fmt.Errorf("pod %s: line %d comes after line %d", l.Pod, n, r.last))
	}
	r.last = n
	r.lines.Add(1)
	return nil
}

func (r *reader) complain(err error) {
	if r.wrong++; r.complaint == nil {
		r.complaint = err
	}
}

// followed are the logs that are followed at once.
type followed struct {
	readers []*reader
	work    sync.WaitGroup
	cancel  context.CancelFunc
	failed  atomic.Pointer[error] // the first reader's that ended by itself
}

// follow makes readers follow the Apps' logs, in turn, and waits until each has a line.
func (b *streams) follow(ctx context.Context, apps, each int) (*followed, error) {
	watching, cancel := context.WithCancel(ctx)
	f := &followed{cancel: cancel}
	for i := range apps * each {
		r := &reader{size: b.Line}
		f.readers = append(f.readers, r)
		f.work.Go(func() {
			err := b.client.Apps().Logs(watching, logs(i%apps), runnerapi.LogOptions{Follow: true, Tail: 1}, r.take)
			if watching.Err() == nil {
				err = fmt.Errorf("the log of %s ended: %w", logs(i%apps), err)
				f.failed.CompareAndSwap(nil, &err)
			}
		})
	}
	started, cancelWait := context.WithTimeout(ctx, startTimeout)
	defer cancelWait()
	err := harness.Eventually(started, "each log has brought lines", func(context.Context) error { return f.check(2) })
	if err != nil {
		f.end()
	}
	return f, err
}

// check fails where a reader has ended, or has not had as many lines.
func (f *followed) check(lines int64) error {
	if err := f.failed.Load(); err != nil {
		return *err
	}
	for i, r := range f.readers {
		if n := r.lines.Load(); n < lines {
			return fmt.Errorf("reader %d has %d lines", i, n)
		}
	}
	return nil
}

func (f *followed) lines() (all int64) {
	for _, r := range f.readers {
		all += r.lines.Load()
	}
	return all
}

// end makes all readers leave, and waits for them.
func (f *followed) end() {
	f.cancel()
	f.work.Wait()
}

// measureLogs follows the logs of all Apps, and looks at each line that comes and at what
// the agent needs for it.
func (b *streams) measureLogs(ctx context.Context) error {
	before, err := b.numbers(ctx)
	if err != nil {
		return err
	}
	f, err := b.follow(ctx, b.Apps, b.Streams)
	if err != nil {
		return err
	}
	defer f.end()
	memory, ended, err := b.during(ctx, f)
	if err != nil {
		return err
	}
	went := time.Now()
	f.end()
	_, err = b.awaitNumber(ctx, endTimeout, callsOpen, func(n float64) bool { return n <= before[callsOpen] })
	if err != nil {
		return err
	}
	took := time.Since(went)
	b.client.Close()
	after, err := b.awaitNumber(ctx, idleTimeout, goroutines, func(n float64) bool { return n <= before[goroutines]+figures.IdleGoroutines })
	if err != nil {
		return err
	}
	b.addLines(f)
	b.set.Add("logs_cut", ended)
	b.set.Add("logs_memory_peak", mebibytes(highest(memory.samples)))
	b.set.Add("logs_memory_growth", mebibytes(memory.growth()))
	b.set.Add("logs_closed", milliseconds(took))
	b.set.Add("logs_goroutines", after-before[goroutines])
	return b.neverRestarted(ctx)
}

// during lets time pass. It returns how many streams the agent has ended meanwhile.
func (b *streams) during(ctx context.Context, f *followed) (m *memory, ended float64, err error) {
	before, err := b.numbers(ctx)
	if err != nil {
		return nil, 0, err
	}
	stop := b.every(3*heartbeat, func() { b.say("%d lines so far", f.lines()) })
	defer stop()
	samples := b.watchMemory(ctx)
	err = wait(ctx, time.Duration(b.Seconds*float64(time.Second)))
	m, failed := samples()
	if err != nil || failed != nil {
		return nil, 0, errors.Join(err, failed)
	}
	after, err := b.numbers(ctx)
	if err == nil {
		err = f.check(int64(b.Seconds))
	}
	return m, after[logsEnded] - before[logsEnded] + after[logsFailed] - before[logsFailed], err
}

func (b *streams) addLines(f *followed) {
	wrong := 0
	for _, r := range f.readers {
		wrong += r.wrong
		if r.complaint != nil {
			b.say("%v", r.complaint)
		}
	}
	b.set.Add("logs_lines", float64(f.lines()))
	b.set.Add("logs_megabytes", float64(f.lines())*float64(b.Line)/1e6/b.Seconds)
	b.set.Add("logs_wrong", float64(wrong))
}
