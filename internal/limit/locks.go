package limit

import (
	"context"
	"math"
	"sync"
)

// Locks are locks by name, within one process. Those who wait for the same lock get it in the order
// in which they came. The zero value is ready for use.
type Locks struct {
	once   sync.Once
	shares *Shares
}

// Lock waits until no other caller has the lock, or until the context ends.
func (l *Locks) Lock(ctx context.Context, name string) error {
	if _, ok := l.all().Wait(ctx, name); !ok {
		return ctx.Err()
	}
	return nil
}

// Unlock returns a lock, if it was taken.
func (l *Locks) Unlock(name string) { l.all().release([]claim{{name: name}}) }

func (l *Locks) all() *Shares {
	l.once.Do(func() { l.shares = NewShares(math.MaxInt, 1) })
	return l.shares
}
