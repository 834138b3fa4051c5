package announce

import (
	"context"
	"errors"
	"time"
)

// watchBuffer is how many changes a watcher may be behind.
const watchBuffer = 4096

// ErrSlowWatcher ends a Watch that does not keep up: what it missed is lost. List the agents again
// and start a new Watch.
var ErrSlowWatcher = errors.New("watching the agents: too slow, changes were missed")

// Change is one change of the directory.
type Change struct {
	Type  Type
	Agent Agent       // as it is after the change; the last known when removed
	App   *AppEvent   // for app.* types
	Route *RouteEvent // for route.* types
	Alert *AlertEvent // for alert.* types
	Time  time.Time
	// Sequence is that of the event; 0 for a change that a snapshot showed.
	Sequence uint64
	// Initial marks the agents that were there when the watch began.
	Initial bool
}

type watcher struct {
	changes chan Change
	tooSlow chan struct{}
}

// Watch calls fn for every agent that is known, then for every change, until the
// context ends or fn returns an error, and returns that.
func (d *Directory) Watch(ctx context.Context, fn func(Change) error) error {
	w := &watcher{changes: make(chan Change, watchBuffer), tooSlow: make(chan struct{})}
	d.mu.Lock()
	initial := d.list()
	d.watchers[w] = struct{}{}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		delete(d.watchers, w)
		d.mu.Unlock()
	}()
	for _, agent := range initial {
		if err := fn(Change{Type: AgentUpdated, Agent: agent, Time: agent.LastSeen, Initial: true}); err != nil {
			return err
		}
	}
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.tooSlow:
			return ErrSlowWatcher
		case c := <-w.changes:
			if err := fn(c); err != nil {
				return err
			}
		}
	}
}

// tell gives a change to all watchers without waiting for any. The lock is held.
func (d *Directory) tell(c Change) {
	for w := range d.watchers {
		select {
		case w.changes <- c:
		default:
			close(w.tooSlow)
			delete(d.watchers, w)
		}
	}
}
