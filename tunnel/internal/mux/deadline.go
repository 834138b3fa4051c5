package mux

import (
	"sync"
	"time"
)

// deadline ends waiting. It is guarded by its waiter's lock. The timer runs only where
// somebody waits: servers set a deadline with each request, and most are never waited for.
type deadline struct {
	waiter *sync.Cond
	at     time.Time
	timer  *time.Timer
}

func (d *deadline) set(at time.Time) {
	d.at = at
	d.waiter.Broadcast() // whoever waits has another timer to set
}

func (d *deadline) passed() bool { return !d.at.IsZero() && !time.Now().Before(d.at) }

// wait waits to be woken, by the deadline too.
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
