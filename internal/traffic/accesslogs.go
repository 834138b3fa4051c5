package traffic

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// maxEntries is how many requests all access logs have together, and mostEntries how many that of
// one App has at most. One takes 2 KB at most.
const maxEntries, mostEntries = 8192, 1000

// AccessLogs are the access logs of the Apps for which they are wanted.
type AccessLogs struct {
	now func() time.Time

	mu      sync.Mutex
	logs    map[App]*AccessLog
	changed chan struct{} // closed when other Apps have a log
}

func newAccessLogs(now func() time.Time) *AccessLogs {
	return &AccessLogs{now: now, logs: map[App]*AccessLog{}, changed: make(chan struct{})}
}

// Keep makes these the Apps that have a log. The entries of others are dropped. Namespaces have
// equal room, and so have the Apps of one.
func (a *AccessLogs) Keep(apps []App) {
	a.mu.Lock()
	defer a.mu.Unlock()
	namespaces := map[string]map[App]bool{}
	for _, app := range apps {
		if namespaces[app.Namespace] == nil {
			namespaces[app.Namespace] = map[App]bool{}
		}
		namespaces[app.Namespace][app] = true
	}
	before := a.logs
	a.logs = map[App]*AccessLog{}
	for _, of := range namespaces {
		size := min(maxEntries/len(namespaces)/len(of), mostEntries)
		for app := range of {
			if size == 0 {
				continue
			}
			if a.logs[app] = before[app]; before[app] == nil {
				a.logs[app] = &AccessLog{size: size}
			}
			a.logs[app].resize(size)
		}
	}
	if !maps.Equal(before, a.logs) {
		close(a.changed)
		a.changed = make(chan struct{})
	}
}

// Of returns the access log of an App; nil if none is wanted.
func (a *AccessLogs) Of(app App) *AccessLog {
	log, _ := a.of(app)
	return log
}

func (a *AccessLogs) of(app App) (*AccessLog, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.logs[app], a.changed
}

// Read calls emit for each entry of an App that the options select, and with Follow for each new
// one until ctx ends. Lines name the replica.
func (a *AccessLogs) Read(ctx context.Context, app App, replica string, opts runnerapi.LogOptions, emit func(runnerapi.LogLine) error) error {
	var next int64
	var reading *AccessLog
	for {
		log, others := a.of(app)
		if log != reading {
			next = 0
		}
		reading = log
		var more <-chan struct{}
		if log != nil {
			entries, first, changed := log.since(next)
			more = changed
			if next > 0 && first > next {
				lost := runnerapi.LogLine{Time: a.now().UTC(), Pod: replica, Line: fmt.Sprintf("%d requests are left out: they came faster than they were read", first-next)}
				if err := emit(lost); err != nil {
					return err
				}
			}
			if next == 0 {
				entries = selected(entries, opts, a.now())
			}
			for _, e := range entries {
				if err := emit(e.line(replica)); err != nil {
					return err
				}
			}
			next = first + int64(len(entries))
		}
		if !opts.Follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil // it is how a followed log ends
		case <-others:
		case <-more:
		}
	}
}

// selected returns the entries with which a log begins.
func selected(entries []entry, opts runnerapi.LogOptions, now time.Time) []entry {
	if opts.Since > 0 {
		entries = slices.DeleteFunc(entries, func(e entry) bool { return now.Sub(e.at) > opts.Since })
	}
	if opts.Tail >= 0 {
		entries = entries[max(len(entries)-opts.Tail, 0):]
	}
	return entries
}
