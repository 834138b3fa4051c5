package controlplane

import (
	"context"
	"os"
	"runtime/debug"
	"time"
)

const (
	// ebbEvery is how often it is looked whether a storm of agents is over, and floodEvery whether
	// one begins.
	ebbEvery   = 5 * time.Second
	floodEvery = time.Second
	// stormLogins are worth giving memory back for, which stops nobody and takes as much CPU as
	// a collection.
	stormLogins = 200
	// stormHandshakes under way are a storm. While it lasts the heap may double between
	// collections, which are a fifth of the storm's CPU where it grows by half (cmd/controlplane).
	stormHandshakes = 200
	stormPercent    = 100
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
	flood, ebb := time.NewTicker(floodEvery), time.NewTicker(ebbEvery)
	defer flood.Stop()
	defer ebb.Stop()
	var s storm
	var gc collector
	defer gc.often()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-flood.C:
			if c.tunnel.Stats().Handshakes >= stormHandshakes {
				gc.seldom()
			}
		case <-ebb.C:
			if s.over(c.tunnel.Stats().Logins) {
				gc.often()
				debug.FreeOSMemory()
			}
		}
	}
}

// collector has garbage collected less often for a while.
type collector struct {
	seldomNow bool
	before    int
}

func (g *collector) seldom() {
	if g.seldomNow || os.Getenv("GOGC") != "" {
		return
	}
	g.before = debug.SetGCPercent(stormPercent)
	g.seldomNow = true
}

// often ends that.
func (g *collector) often() {
	if g.seldomNow {
		debug.SetGCPercent(g.before)
		g.seldomNow = false
	}
}
