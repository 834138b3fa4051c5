package controlplane

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"time"
)

const (
	// ebbEvery is how often it is looked whether a storm of agents is over.
	ebbEvery = 5 * time.Second
	// stormLogins are worth giving memory back for, which stops nobody and takes as much CPU as
	// a collection.
	stormLogins = 200
	// restPercent is for a heap that is collected once in ebbEvery or less often, as that of thousands
	// of agents at rest is: it has a third of the garbage lie about, and collecting three times as often is cheap.
	restPercent = 15
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
	gc := newCollector()
	defer gc.end()
	collected, stop := watchCollections()
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-collected:
			gc.came(collections())
		case <-ebb.C:
			if s.over(c.tunnel.Stats().Logins) {
				runtime.GC() // what pools keep is free after the second one, which is FreeOSMemory's
				debug.FreeOSMemory()
			}
			gc.look(collections())
		}
	}
}

// collections is how many there were.
func collections() uint64 {
	sample := []metrics.Sample{{Name: "/gc/cycles/total:gc-cycles"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// watchCollections says after each collection that there was one, until it is stopped. It does so by what nobody holds, so that
// each collection finds it.
func watchCollections() (collected <-chan struct{}, stop func()) {
	told, stopped := make(chan struct{}, 1), new(atomic.Bool)
	var arm func()
	arm = func() {
		// Larger than what the allocator puts together with others, which may be held.
		runtime.AddCleanup(new([64]byte), func(struct{}) {
			if stopped.Load() {
				return
			}
			select {
			case told <- struct{}{}:
			default: // it is said already
			}
			arm()
		}, struct{}{})
	}
	arm()
	return told, func() { stopped.Store(true) }
}

// collector has garbage collected as often as the time needs it. Where the environment has the say
// (GOGC) it does nothing.
type collector struct {
	set   func(percent int) (before int) // debug.SetGCPercent; nil for nothing
	first int                            // the process's own
	now   int
	last  uint64 // collections until the last look
}

func newCollector() *collector {
	if os.Getenv("GOGC") != "" {
		return &collector{}
	}
	g := &collector{set: debug.SetGCPercent}
	g.first = g.set(restPercent) // the only way to ask
	g.set(g.first)
	g.now, g.last = g.first, collections()
	return g
}

func (g *collector) to(percent int) {
	if g.set != nil && g.now != percent {
		g.set(percent)
		g.now = percent
	}
}

// look is told, every now and then, how many collections there were until now. Where there was one
// at most since the last time, they are cheap.
func (g *collector) look(collections uint64) {
	came := collections - g.last
	g.last = collections
	if came > 1 {
		g.to(g.first)
	} else {
		g.to(min(restPercent, g.first))
	}
}

// came is told after a collection how many there were until now. The second since the last look ends rest at once: until
// the next look a burst of work would be spent on looking through thousands of agents again and again.
func (g *collector) came(collections uint64) {
	if collections-g.last > 1 {
		g.to(g.first)
	}
}

// end leaves the process as it was.
func (g *collector) end() { g.to(g.first) }
