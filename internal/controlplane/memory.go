package controlplane

import (
	"context"
	"runtime"
	"runtime/debug"
	"time"
)

const (
	// ebbEvery is how often it is looked whether a storm of agents is over.
	ebbEvery = 5 * time.Second
	// stormLogins are worth giving memory back for, which stops nobody and takes as much CPU as
	// a collection.
	stormLogins = 200
)

// storm watches how many agents come, to know when a storm of them is over.
type storm struct {
	settled, last uint64 // logins when memory was given back, and when it was looked last
}

// over says whether many have come and hardly any come now.
func (s *storm) over(logins uint64) bool {
	came, now := logins-s.settled, logins-s.last
	s.last = logins
	if came < stormLogins || now > came/50 {
		return false
	}
	s.settled = logins
	return true
}

// giveBack returns to the system what handshakes and logins needed, when a storm of them is
// over. By itself the runtime keeps most of it for the next one.
func (c *ControlPlane) giveBack(ctx context.Context) error {
	ebb := time.NewTicker(ebbEvery)
	defer ebb.Stop()
	var s storm
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ebb.C:
			if s.over(c.tunnel.Stats().Logins) {
				runtime.GC() // what pools keep is free after the second one, which is FreeOSMemory's
				debug.FreeOSMemory()
			}
		}
	}
}
