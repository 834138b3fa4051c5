package memory_test

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/cgroup"
	"github.com/pipeops/pipeops-vm-agent/internal/limit"
	"github.com/pipeops/pipeops-vm-agent/internal/memory"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/test/problemtest"
)

// group is a control group of 160 MiB, of which large work gets 144 and small work eight.
type group struct{ used atomic.Int64 }

func (g *group) measure() (cgroup.Memory, bool) {
	return cgroup.Memory{Limit: 160 << 20, Used: g.used.Load()}, true
}

func TestAcquire_RefusesWhatNeverFits(t *testing.T) {
	_, err := memory.New((&group{}).measure).Acquire(t.Context(), "", "rendering a chart", 145<<20)
	refused := problemtest.Of(t, err)
	assert.Equal(t, problem.TooLarge, refused.Code)
	assert.Equal(t, "rendering a chart takes up to 145 MiB of memory; of its limit of 160 MiB the agent gives at most 144 MiB to one command", refused.Detail)
	assert.Contains(t, refused.Fix, "resources.limits.memory")
}

func TestAcquire_RefusesWhatDoesNotFitInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := &group{}
		of.used.Store(50 << 20)
		g := memory.New(of.measure)
		first, err := g.Acquire(t.Context(), "", "one", 60<<20)
		require.NoError(t, err)
		defer first.Release()
		began := time.Now()
		_, err = g.Acquire(t.Context(), "", "another", 35<<20)
		refused := problemtest.Of(t, err)
		assert.Equal(t, 20*time.Second, time.Since(began))
		assert.Equal(t, problem.Unavailable, refused.Code)
		assert.Positive(t, refused.RetryAfter)
		assert.Equal(t, "another takes up to 35 MiB of memory; of the agent's 160 MiB, 94 are free and other commands have reserved 60", refused.Detail)

		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(errors.New("the caller left")) })
		_, err = g.Acquire(ctx, "", "a third", 35<<20)
		assert.ErrorContains(t, err, "the caller left")
	})
}

func TestAcquire_InOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memory.New((&group{}).measure)
		hold, err := g.Acquire(t.Context(), "", "first", 130<<20)
		require.NoError(t, err)
		admitted := make(chan int, 2)
		var others sync.WaitGroup
		for i, bytes := range []int64{140 << 20, 11 << 20} { // the last one would fit into what is left
			others.Go(func() {
				h, err := g.Acquire(t.Context(), "", fmt.Sprint(i), bytes)
				assert.NoError(t, err)
				admitted <- i
				h.Release()
			})
			synctest.Wait()
		}
		assert.Empty(t, admitted)
		hold.Release()
		assert.Equal(t, 0, <-admitted)
		assert.Equal(t, 1, <-admitted)
		others.Wait()
	})
}

// TestAcquire_SharesByOwner: an owner with much work leaves room in the line for others.
func TestAcquire_SharesByOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memory.New((&group{}).measure)
		var greedy sync.WaitGroup
		for range 5 {
			greedy.Go(func() {
				if h, err := g.Acquire(t.Context(), "greedy", "work", 70<<20); err == nil {
					time.Sleep(19 * time.Second)
					h.Release()
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		hold, err := g.Acquire(t.Context(), "modest", "work", 70<<20)
		require.NoError(t, err)
		assert.Equal(t, 19*time.Second, time.Since(began), "it waits for the two that came before it alone")
		hold.Release()
		greedy.Wait()
	})
}

// TestAcquire_SharesByRunner: a Runner with work in many namespaces leaves room in the line for
// other Runners.
func TestAcquire_SharesByRunner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memory.New((&group{}).measure)
		var greedy sync.WaitGroup
		for n := range 6 {
			greedy.Go(func() {
				if h, err := g.Acquire(limit.WithRunner(t.Context(), "greedy"), fmt.Sprint(n), "work", 70<<20); err == nil {
					time.Sleep(19 * time.Second)
					h.Release()
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		hold, err := g.Acquire(limit.WithRunner(t.Context(), "modest"), "another", "work", 70<<20)
		require.NoError(t, err)
		assert.Equal(t, 19*time.Second, time.Since(began), "of the other Runner, three came before it")
		hold.Release()
		greedy.Wait()
	})
}

// TestAcquire_SlowLeavesSmall: work that waits for servers of others does not hold the memory of
// small work.
func TestAcquire_SlowLeavesSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memory.New((&group{}).measure)
		slow, err := g.AcquireSlow(t.Context(), "shop", "a commit", 8<<20)
		require.NoError(t, err)
		defer slow.Release()
		small, err := g.Acquire(t.Context(), "other", "small", 8<<20)
		require.NoError(t, err)
		small.Release()
	})
}

// TestAcquire_MeasuresAgain: memory that no work reserved becomes free without notice.
func TestAcquire_MeasuresAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := &group{}
		of.used.Store(100 << 20)
		time.AfterFunc(5*time.Second, func() { of.used.Store(30 << 20) })
		began := time.Now()
		hold, err := memory.New(of.measure).Acquire(t.Context(), "", "large", 100<<20)
		require.NoError(t, err)
		assert.LessOrEqual(t, time.Since(began), 6*time.Second)
		hold.Release()
	})
}

func TestAcquire_SmallWorkDoesNotQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := memory.New((&group{}).measure)
		large, err := g.Acquire(t.Context(), "", "large", 140<<20)
		require.NoError(t, err)
		defer large.Release()
		small, err := g.Acquire(t.Context(), "", "small", 6<<20)
		require.NoError(t, err)
		_, err = g.Acquire(t.Context(), "", "small", 6<<20)
		assert.Equal(t, problem.Unavailable, problemtest.Of(t, err).Code, "all small work has a bound, too")
		_, err = small.Grow(5 << 20)
		assert.Equal(t, problem.Unavailable, problemtest.Of(t, err).Code)
		small.Release()
		small, err = g.Acquire(t.Context(), "", "small", 6<<20)
		require.NoError(t, err)
		small.Release()
	})
}

func TestHold_GrowsAndShrinks(t *testing.T) {
	g := memory.New((&group{}).measure)
	hold, err := g.Acquire(t.Context(), "", "work", 100<<20)
	require.NoError(t, err)
	before, err := hold.Grow(30 << 20)
	require.NoError(t, err)
	assert.EqualValues(t, 100<<20, before)
	_, err = hold.Grow(15 << 20)
	assert.Equal(t, problem.Unavailable, problemtest.Of(t, err).Code, "it does not wait for itself")
	hold.Shrink(20 << 20)
	other, err := g.Acquire(t.Context(), "", "another", 120<<20)
	require.NoError(t, err)
	other.Release()
	assert.True(t, hold.Holds())
	hold.Release()
	hold.Release()
	assert.False(t, hold.Holds())
	all, err := g.Acquire(t.Context(), "", "all", 140<<20)
	require.NoError(t, err, "nothing is returned twice")
	all.Release()
	var none *memory.Hold
	none.Release()
	assert.False(t, none.Holds())
}

func TestAcquire_WithoutLimit(t *testing.T) {
	g := memory.New(func() (cgroup.Memory, bool) { return cgroup.Memory{}, false })
	hold, err := g.Acquire(t.Context(), "", "work", 448<<20)
	require.NoError(t, err)
	defer hold.Release()
	_, err = hold.Grow(65 << 20)
	assert.Equal(t, problem.Unavailable, problemtest.Of(t, err).Code)
	soft := debug.SetMemoryLimit(-1)
	end := g.Beside(84 << 20)
	assert.Equal(t, soft, debug.SetMemoryLimit(-1))
	end()
}

// TestBeside_BudgetsAddUp: what the agent may have while children run, and the children, fit into
// the limit.
func TestBeside_BudgetsAddUp(t *testing.T) {
	const child = 40 << 20
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(116 << 20))
	g := memory.New((&group{}).measure)
	first := g.Beside(child)
	assert.EqualValues(t, 112<<20, debug.SetMemoryLimit(-1))
	second := g.Beside(child)
	assert.EqualValues(t, 72<<20, debug.SetMemoryLimit(-1))
	first()
	first()
	assert.EqualValues(t, 112<<20, debug.SetMemoryLimit(-1))
	second()
	assert.EqualValues(t, 116<<20, debug.SetMemoryLimit(-1))
}
