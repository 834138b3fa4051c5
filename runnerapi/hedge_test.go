package runnerapi_test

import (
	"context"
	"net/http/httptrace"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnerapitest"
	"github.com/pipeops/pipeops-vm-agent/test/chaos/wire"
)

// ways are two wires to one agent, and a client that knows both.
type ways struct {
	*runnerapi.Client
	agent *runnerapitest.Agent
	wires [2]*wire.Wire

	mu    sync.Mutex
	asked []string // the wires' addresses by which calls went
}

func newWays(t *testing.T, prepare func(*runnerapitest.FakeBackend)) *ways {
	t.Helper()
	backend := runnerapitest.NewBackend()
	prepare(backend)
	w := &ways{agent: runnerapitest.Start(t, backend)}
	config := w.agent.ClientConfig()
	config.EdgeAddresses = nil
	for i := range w.wires {
		var err error
		w.wires[i], err = wire.Listen(t.Context(), "way", w.agent.Address)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, w.wires[i].Close()) })
		config.EdgeAddresses = append(config.EdgeAddresses, w.wires[i].Addr())
	}
	var err error
	w.Client, err = runnerapi.NewClient(config)
	require.NoError(t, err)
	t.Cleanup(w.Close)
	return w
}

// ctx has it noted by which wire a call goes.
func (w *ways) ctx(t *testing.T) context.Context {
	return httptrace.WithClientTrace(ctxFor(t), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.asked = append(w.asked, info.Conn.RemoteAddr().String())
	}})
}

// came are the wires by which calls went since it was asked last.
func (w *ways) came() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	asked := w.asked
	w.asked = nil
	return asked
}

// freeze has the wire that is in use say nothing more, and close nothing.
func (w *ways) freeze(t *testing.T) (frozen, other *wire.Wire) {
	t.Helper()
	_, err := w.Cluster(w.ctx(t))
	require.NoError(t, err)
	came := w.came()
	frozen, other = w.wires[0], w.wires[1]
	if came[len(came)-1] == other.Addr() {
		frozen, other = other, frozen
	}
	frozen.Set(wire.Condition{HoldUp: true, HoldDown: true})
	return frozen, other
}

// soon is far from what pings take to find a connection frozen, half a minute, and allows for a
// machine that has other things to do.
const soon = 7 * time.Second

// TestAReadIsAskedElsewhere where its connection is frozen: after a second, and once. What
// comes after it goes by the way that answered.
func TestAReadIsAskedElsewhere(t *testing.T) {
	w := newWays(t, func(*runnerapitest.FakeBackend) {})
	frozen, other := w.freeze(t)
	began := time.Now()
	_, err := w.Cluster(w.ctx(t))
	require.NoError(t, err)
	assert.Greater(t, time.Since(began), 900*time.Millisecond)
	assert.Less(t, time.Since(began), soon)
	assert.Equal(t, []string{frozen.Addr(), other.Addr()}, w.came())
	for range 5 {
		_, err = w.Cluster(w.ctx(t))
		require.NoError(t, err)
	}
	assert.NotContains(t, w.came(), frozen.Addr(), "the way that answered is the first now")
	frozen.Set(wire.Condition{})
}

// TestManyReadsOfAFrozenConnection are all asked elsewhere: that helps, so it is no load.
func TestManyReadsOfAFrozenConnection(t *testing.T) {
	w := newWays(t, func(*runnerapitest.FakeBackend) {})
	frozen, _ := w.freeze(t)
	began := time.Now()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			_, err := w.Cluster(ctxFor(t))
			assert.NoError(t, err)
		})
	}
	all.Wait()
	assert.Less(t, time.Since(began), 2*soon)
	frozen.Set(wire.Condition{})
}

// TestASlowAnswerIsNotAskedForTwice as long as others come over its connection, and of those over
// silent connections no more than the budget has.
func TestASlowAnswerIsNotAskedForTwice(t *testing.T) {
	slow, reads := make(chan struct{}), 0
	var mu sync.Mutex
	w := newWays(t, func(b *runnerapitest.FakeBackend) {
		b.Intercept = func(ctx context.Context, call runnerapitest.Call) error {
			if call.Verb != "ListNamespaces" {
				return nil
			}
			mu.Lock()
			reads++
			mu.Unlock()
			select {
			case <-slow:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	_, err := w.Cluster(w.ctx(t))
	require.NoError(t, err)
	first := slices.Compact(w.came())
	var waiting sync.WaitGroup
	list := func() {
		_, err := w.ListNamespaces(w.ctx(t))
		assert.NoError(t, err)
	}
	waiting.Go(list)
	for began := time.Now(); time.Since(began) < 2500*time.Millisecond; {
		_, err := w.Cluster(w.ctx(t))
		require.NoError(t, err)
	}
	assert.Equal(t, first, slices.Compact(w.came()), "the connection is well")
	for range 29 {
		waiting.Go(list)
	}
	asked := func() int {
		mu.Lock()
		defer mu.Unlock()
		return reads
	}
	require.Eventually(t, func() bool { return asked() >= 40 }, soon, 50*time.Millisecond, "30, and ten hedges")
	require.Never(t, func() bool { return asked() > 43 }, time.Second, 50*time.Millisecond, "those who came earned three more at most")
	close(slow)
	waiting.Wait()
}

// TestAWriteIsNotAskedTwice: it waits for its connection, and is carried out once.
func TestAWriteIsNotAskedTwice(t *testing.T) {
	w := newWays(t, func(*runnerapitest.FakeBackend) {})
	frozen, other := w.freeze(t)
	done := make(chan error, 1)
	ctx := w.ctx(t)
	go func() {
		_, err := w.Deploy(ctx, web, runnerapi.AppSpec{Image: "shop/web:1"}, runnerapi.WriteOptions{})
		done <- err
	}()
	require.Eventually(t, func() bool { return slices.Equal(w.came(), []string{frozen.Addr()}) }, soon, 10*time.Millisecond)
	_, err := w.Cluster(w.ctx(t))
	require.NoError(t, err)
	assert.Equal(t, []string{frozen.Addr(), other.Addr()}, w.came())
	frozen.Set(wire.Condition{})
	require.NoError(t, <-done)
	puts := 0
	for _, call := range w.agent.Backend.Calls() {
		if call.IdempotencyKey != "" {
			puts++
		}
	}
	assert.Equal(t, 1, puts)
}
