package dashboard

import (
	"sync"
	"time"
)

// outages remember since when something has been away. Each page that looks at it passes on what it
// sees, so that all open pages name the same time.
type outages struct {
	now func() time.Time

	mu    sync.Mutex
	since map[string]time.Time
}

func newOutages(now func() time.Time) *outages {
	return &outages{now: now, since: map[string]time.Time{}}
}

// saw records whether something is away, and returns since when; the zero time if it is there.
func (o *outages) saw(what string, away bool) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !away {
		delete(o.since, what)
		return time.Time{}
	}
	if o.since[what].IsZero() {
		o.since[what] = o.now()
	}
	return o.since[what]
}
