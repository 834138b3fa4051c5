// Package memory admits work by the memory that is free, so that the sum of what runs at a time
// fits into the limit of the agent's pod or unit. A single piece of work bounds its own input; this
// package bounds what all of them have in memory together. It makes work wait, or refuses it, where
// the kernel would kill the agent: with the kubelet's settings for version 2 of control groups, the
// kernel kills all processes of a container at once.
package memory

import (
	"context"
	"errors"
	"math"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/pipeops/pipeops-vm-agent/internal/cgroup"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

const (
	// MostAtOnce bounds what is reserved at a time, in bytes, however large the limit is. Without a
	// limit, it is the only bound.
	MostAtOnce = 512 << 20
	// kept is the part of the limit that large work leaves free, one in so many bytes: half of it
	// for small work, the rest for what no work reserves, such as buffers of connections.
	kept = 10
	// mostSmall bounds one piece of small work, in bytes.
	mostSmall = 8 << 20
	// givenBack is the size from which memory is returned to the system when work ends: Go would
	// return it within minutes.
	givenBack = 16 << 20
	// ofNamespace and ofRunner are how many pieces of large work in a namespace, and for a Runner,
	// are done, or wait in line, at a time. Others wait beside the line, where they delay no other
	// owner.
	ofNamespace, ofRunner = 2, 3
	// patience bounds how long work waits for memory: less than a call may take.
	patience = 20 * time.Second
	// look is how often work that waits measures again: memory that no work reserved becomes free
	// without notice.
	look = time.Second
)

// Gate admits work. Large work is admitted in the order in which it came, of one owner a little at
// a time. Small work does not queue behind it, and has a part of the memory for itself.
type Gate struct {
	measure  func() (m cgroup.Memory, limited bool)
	giveBack func() // returns unused memory to the system
	patience time.Duration
	small    int64               // bytes of the largest small work
	smalls   *semaphore.Weighted // bytes of all small work

	owners  *limit.OwnerShares
	line    chan struct{} // held by the first in line
	changed chan struct{} // work has ended

	mu       sync.Mutex
	reserved int64 // by large work, in bytes
	soft     softLimit
}

// New returns a gate for a process whose control group is measured by measure.
func New(measure func() (cgroup.Memory, bool)) *Gate {
	g := &Gate{measure: measure, giveBack: debug.FreeOSMemory, patience: patience, owners: limit.NewOwnerShares(math.MaxInt, limit.PerOwner{Namespace: ofNamespace, Runner: ofRunner}), line: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
	all := keptOf(g.limit()) / 2
	g.small, g.smalls = min(all, mostSmall), semaphore.NewWeighted(all)
	return g
}

// process is the gate of this process.
var process = sync.OnceValue(func() *Gate {
	return New(func() (cgroup.Memory, bool) { return cgroup.Tightest("/", cgroup.Self) })
})

// Acquire is Gate.Acquire of this process' gate.
func Acquire(ctx context.Context, namespace, work string, bytes int64) (*Hold, error) {
	return process().Acquire(ctx, namespace, work, bytes)
}

// AcquireSlow is Gate.AcquireSlow of this process' gate.
func AcquireSlow(ctx context.Context, namespace, work string, bytes int64) (*Hold, error) {
	return process().AcquireSlow(ctx, namespace, work, bytes)
}

// Acquire waits until work that takes so many bytes fits. It refuses what can never fit, and what
// does not fit in time, with an error for the sender of a command. The work is done for a
// namespace, empty for the agent itself, and for the Runner of ctx (limit.WithRunner). work names
// it in errors: "rendering a chart". The caller releases the hold. Work that has a hold must not
// wait for another one; see Hold.Grow.
func (g *Gate) Acquire(ctx context.Context, namespace, work string, bytes int64) (*Hold, error) {
	return g.acquire(ctx, namespace, work, bytes, bytes <= g.small)
}

// AcquireSlow is like Acquire for work that waits for a server of others. It is always large work:
// the memory for small work would be held for minutes.
func (g *Gate) AcquireSlow(ctx context.Context, namespace, work string, bytes int64) (*Hold, error) {
	return g.acquire(ctx, namespace, work, bytes, false)
}

func (g *Gate) acquire(ctx context.Context, namespace, work string, bytes int64, small bool) (*Hold, error) {
	all := g.limit()
	if bytes > all-keptOf(all) {
		return nil, problem.Errorf(problem.TooLarge, "make it smaller, or give the agent more memory (resources.limits.memory and goMemLimit)",
			"%s takes up to %d MiB of memory; of its limit of %d MiB the agent gives at most %d MiB to one command", work, mib(bytes), all>>20, (all-keptOf(all))>>20)
	}
	waiting, cancel := context.WithTimeout(ctx, g.patience)
	defer cancel()
	if small {
		if g.smalls.Acquire(waiting, bytes) != nil {
			return nil, g.refuse(ctx, work, bytes)
		}
		return &Hold{gate: g, work: work, bytes: bytes, small: true}, nil
	}
	leave, ok := g.owners.Wait(waiting, limit.OwnerOf(ctx, namespace))
	if !ok {
		return nil, g.refuse(ctx, work, bytes)
	}
	hold, err := g.large(ctx, waiting, work, bytes)
	if err != nil {
		leave()
		return nil, err
	}
	hold.leave = leave
	return hold, nil
}

// large admits large work, in order.
func (g *Gate) large(ctx, waiting context.Context, work string, bytes int64) (*Hold, error) {
	select {
	case g.line <- struct{}{}: // Go admits senders in their order
	case <-waiting.Done():
		return nil, g.refuse(ctx, work, bytes)
	}
	defer func() { <-g.line }()
	again := time.NewTicker(look)
	defer again.Stop()
	for !g.take(bytes) {
		select {
		case <-g.changed:
		case <-again.C:
		case <-waiting.Done():
			return nil, g.refuse(ctx, work, bytes)
		}
	}
	return &Hold{gate: g, work: work, bytes: bytes}, nil
}

// take reserves bytes if they are free. What work in progress has reserved counts in full, beside
// what it already uses.
func (g *Gate) take(bytes int64) bool {
	if g.free() < bytes {
		g.giveBack()
	}
	free := g.free()
	g.mu.Lock()
	defer g.mu.Unlock()
	if free-g.reserved < bytes {
		return false
	}
	g.reserved += bytes
	return true
}

// free returns the bytes that large work may use, reserved or not.
func (g *Gate) free() int64 {
	m, limited := g.measure()
	if !limited {
		return MostAtOnce
	}
	return min(m.Limit-m.Used-keptOf(m.Limit), MostAtOnce)
}

func (g *Gate) limit() int64 {
	m, limited := g.measure()
	if !limited {
		return MostAtOnce
	}
	return m.Limit
}

func keptOf(limit int64) int64 { return min(limit, MostAtOnce) / kept }

func (g *Gate) refuse(ctx context.Context, work string, bytes int64) error {
	if errors.Is(ctx.Err(), context.Canceled) { // no one waits for the answer
		return context.Cause(ctx)
	}
	g.mu.Lock()
	reserved := g.reserved
	g.mu.Unlock()
	free := max(g.free(), 0)
	return problem.Errorf(problem.Unavailable, "send it again when the agent is less busy, or give it more memory (resources.limits.memory and goMemLimit)",
		"%s takes up to %d MiB of memory; of the agent's %d MiB, %d are free and other commands have reserved %d", work, mib(bytes), g.limit()>>20, free>>20, reserved>>20).
		WithRetryAfter(5 * time.Second)
}

// mib rounds up.
func mib(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 }

// softLimit is this process' GOMEMLIMIT.
type softLimit struct {
	mu     sync.Mutex
	beside int64 // what child processes may use
	own    int64 // as it was before
}

// Beside lowers this process' own limit (GOMEMLIMIT) while a child process runs that may use so
// many bytes, so that both fit into the limit. The caller calls end when the child has ended.
func Beside(bytes int64) (end func()) { return process().Beside(bytes) }

// Beside is the function of that name, for a gate.
func (g *Gate) Beside(bytes int64) (end func()) {
	g.soft.lower(g.roomOf, bytes)
	return sync.OnceFunc(func() { g.soft.lower(g.roomOf, -bytes) })
}

// roomOf returns what this process may use beside others that use so many bytes.
func (g *Gate) roomOf(beside int64) int64 {
	m, limited := g.measure()
	if !limited {
		return math.MaxInt64
	}
	return max(m.Limit-keptOf(m.Limit)/2-beside, 0)
}

func (s *softLimit) lower(room func(beside int64) int64, bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.beside == 0 {
		s.own = debug.SetMemoryLimit(-1)
	}
	if s.beside += bytes; s.beside == 0 {
		debug.SetMemoryLimit(s.own)
		return
	}
	debug.SetMemoryLimit(min(s.own, room(s.beside)))
}
