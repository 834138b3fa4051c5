package mux

import (
	"sync"
	"time"
)

const (
	// dear is what it may take on average to give way. Whoever has requests or answers wants the processor for less;
	// whoever computes keeps it for some milliseconds, a time slice.
	dear = time.Millisecond
	// dearest is what once counts as at most, so that one long wait says little.
	dearest = 4 * dear
	// leastPause is for the first time that giving way is dear; then each pause is twice the one before, up to
	// mostPause, until giving way is of use for longer than it was paused.
	leastPause, mostPause = 50 * time.Millisecond, 3200 * time.Millisecond
)

// courtesy lets other processes have the processor: before somebody is read again who is ahead of the answers, as by then there
// is more to read at once, and among bulk, as others wait for less. Beside processes that compute it
// would cost a time slice each time, so what it takes is watched.
type courtesy struct {
	yield func()           // the processor, to whoever else wants it
	now   func() time.Time // the clock

	mu    sync.Mutex
	cost  time.Duration // of giving way, on average
	pause time.Duration // the newest
	until time.Time     // its end
}

// everybodys is the process' courtesy: all its sessions share processors, and with the same others.
var everybodys = &courtesy{yield: yield, now: time.Now}

// giveWay returns when the processor is ours again.
func (c *courtesy) giveWay() {
	begin := c.now()
	if c.paused(begin) {
		return
	}
	c.yield()
	c.took(begin, c.now())
}

func (c *courtesy) paused(at time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return at.Before(c.until)
}

// took counts how long it took to give way, and begins a pause where that has become dear.
func (c *courtesy) took(begin, end time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if begin.Before(c.until) {
		return // another's began a pause meanwhile
	}
	c.cost += (min(end.Sub(begin), dearest) - c.cost) / 16
	if c.cost <= dear {
		return
	}
	if end.Sub(c.until) > c.pause {
		c.pause = leastPause
	} else {
		c.pause = min(2*c.pause, mostPause)
	}
	c.until = end.Add(c.pause)
	c.cost = dear / 2 // a few more show whether it still is dear
}
