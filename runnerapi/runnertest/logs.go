package runnertest

import (
	"context"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// Log appends lines to the log that all Apps share.
func (b *FakeBackend) Log(lines ...runnerapi.LogLine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, lines...)
	b.notify()
}

// EndLogs makes logs end with this error once all lines are written.
func (b *FakeBackend) EndLogs(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.logEnd = err
	b.notify()
}

// Following returns how many logs are being followed now.
func (b *FakeBackend) Following() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.following
}

// Logs implements backend.Apps. It supports all options but Previous and Container.
func (b fakeApps) Logs(ctx context.Context, key runnerapi.Key, opts runnerapi.LogOptions, emit func(runnerapi.LogLine) error) error {
	if err := b.enter(ctx, Call{Verb: "Apps.Logs", Key: key}); err != nil {
		return err
	}
	b.mu.Lock()
	_, err := b.get(key)
	b.following++
	next := 0
	if opts.Tail >= 0 {
		next = max(0, len(b.lines)-opts.Tail)
	}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.following--
		b.mu.Unlock()
	}()
	if err != nil {
		return err
	}
	var oldest time.Time
	if opts.Since > 0 {
		oldest = time.Now().Add(-opts.Since)
	}
	for {
		b.mu.Lock()
		lines, end, changed := b.lines[next:], b.logEnd, b.changed
		b.mu.Unlock()
		for _, line := range lines {
			next++
			if line.Time.Before(oldest) {
				continue
			}
			if err := emit(line); err != nil {
				return err
			}
		}
		if end != nil || !opts.Follow {
			return end
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
