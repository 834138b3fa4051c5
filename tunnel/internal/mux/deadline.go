package mux

import (
	"sync"
	"time"
)

// deadline ends a wait. Its waiter's lock guards it. The timer runs only during a wait: servers set
// a deadline with each request, and most are never waited for.
type deadline struct {
	waiter *sync.Cond
	at     time.Time
	timer  *time.Timer
}

func (d *deadline) set(at time.Time) {
	d.at = at
	d.waiter.Broadcast() // the waiter has another timer to set
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// wait waits to be woken, also by the deadline.
func (d *deadline) wait() {
	if !d.at.IsZero() {
		if d.timer == nil {
			d.timer = time.AfterFunc(time.Until(d.at), d.late)
		} else {
			d.timer.Reset(time.Until(d.at))
		}
	}
	d.waiter.Wait()
}

func (d *deadline) late() {
	d.waiter.L.Lock()
	defer d.waiter.L.Unlock()
	d.waiter.Broadcast()
}
