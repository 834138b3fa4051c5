package runnerapi_test

import (
	"context"
	"net/http/httptrace"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/runnerapitest"
	"github.com/pipeops/pipeops-vm-agent/test/await"
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
	runnerapi.WithoutHedging(w.Client)
	return w
}

// ctx has it noted by which wire a call goes. It ends before pings, which take half a minute, find
// a connection frozen.
func (w *ways) ctx(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
	t.Cleanup(cancel)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
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

// freeze has the wire that is in use say nothing more, and close nothing. From then on a silent
// read is asked elsewhere.
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
	runnerapi.HedgingAfter(w.Client, soon)
	return frozen, other
}

// soon is after what silence a read is asked elsewhere.
const soon = 4 * time.Millisecond

// TestAReadIsAskedElsewhere where its connection is frozen, once. What comes after it goes by
// the way that answered.
func TestAReadIsAskedElsewhere(t *testing.T) {
	w := newWays(t, func(*runnerapitest.FakeBackend) {})
	frozen, other := w.freeze(t)
	_, err := w.Cluster(w.ctx(t))
	require.NoError(t, err)
	assert.Equal(t, []string{frozen.Addr(), other.Addr()}, w.came())
	runnerapi.WithoutHedging(w.Client)
	for range 5 {
		_, err = w.Cluster(w.ctx(t))
		require.NoError(t, err)
	}
	assert.NotContains(t, w.came(), frozen.Addr(), "the way that answered is the first now")
	frozen.Set(wire.Condition{})
}

// TestWhatHelpedIsNoLoad has more reads asked elsewhere than may be at once.
func TestWhatHelpedIsNoLoad(t *testing.T) {
	w := newWays(t, func(*runnerapitest.FakeBackend) {})
	for range 20 {
		frozen, other := w.freeze(t)
		_, err := w.Cluster(w.ctx(t))
		require.NoError(t, err)
		require.Equal(t, []string{frozen.Addr(), other.Addr()}, w.came())
		runnerapi.WithoutHedging(w.Client)
		frozen.Set(wire.Condition{})
	}
}

// TestSlowAnswersAreAskedForTwiceWithinTheBudget alone, over connections that are silent.
func TestSlowAnswersAreAskedForTwiceWithinTheBudget(t *testing.T) {
	slow := make(chan struct{})
	var reads atomic.Int64
	w := newWays(t, func(b *runnerapitest.FakeBackend) {
		b.Intercept = func(ctx context.Context, call runnerapitest.Call) error {
			if call.Verb != "ListNamespaces" {
				return nil
			}
			reads.Add(1)
			select {
			case <-slow:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	runnerapi.HedgingAfter(w.Client, soon)
	ctx := ctxFor(t)
	var waiting sync.WaitGroup
	for range 30 {
		waiting.Go(func() {
			_, err := w.ListNamespaces(ctx)
			assert.NoError(t, err)
		})
	}
	await.Until(t, "30 reads have come, and ten for the second time", func() bool { return reads.Load() >= 40 })
	other := w.agent.Client()
	for range 20 { // time in which more could come
		_, err := other.Cluster(ctx)
		require.NoError(t, err)
	}
	assert.LessOrEqual(t, reads.Load(), int64(43), "the 30 earned three more at most")
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
	await.Until(t, "the write has gone by the frozen wire", func() bool { return slices.Equal(w.came(), []string{frozen.Addr()}) })
	_, err := w.Cluster(w.ctx(t))
	require.NoError(t, err)
	assert.Equal(t, []string{frozen.Addr(), other.Addr()}, w.came())
	frozen.Set(wire.Condition{})
	require.NoError(t, await.Receive(t, done, "the answer of the write"))
	puts := 0
	for _, call := range w.agent.Backend.Calls() {
		if call.IdempotencyKey != "" {
			puts++
		}
	}
	assert.Equal(t, 1, puts)
}
