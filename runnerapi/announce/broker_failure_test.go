package announce_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
)

// The network swallows everything, like a firewall that forgot a connection: Publish ends with
// its context and returns what was not confirmed.
func TestPublish_EndsOnSilentNetwork(t *testing.T) {
	t.Parallel()
	b := rabbit.VHost(t)
	proxy := newProxy(t, b.Address())
	cfg := config(b, broker.UserControlPlane)
	cfg.URLs = []string{b.URLAt(broker.UserControlPlane, proxy.addr)}
	p := publisher(t, cfg)
	announced(t, p, makeEvents(t, "silent", 1, 1))

	proxy.silence()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	type result struct {
		n   int
		err error
	}
	published, events := make(chan result, 1), encoded(t, makeEvents(t, "silent", 2, 2))
	go func() {
		n, err := p.Publish(ctx, events)
		published <- result{n, err}
	}()
	await.Closed(t, proxy.swallowed, "the proxy to swallow what is published")
	cancel()
	got := await.Receive(t, published, "the end of Publish")
	if n, err := got.n, got.err; n != 0 || rabbitmq.CodeOf(err) != rabbitmq.CodeUnconfirmed {
		t.Errorf("Publish = %d, %v", n, err)
	}
	// The publisher gives the connection up, and run waits no longer than it may.
}

// proxy forwards until it is silenced; then it takes everything and gives nothing.
type proxy struct {
	addr   string
	silent chan struct{}
	// swallowed is closed when it has swallowed more than a heartbeat.
	swallowed chan struct{}
	swallow   func()
}

// moreThanAHeartbeat is longer than a heartbeat in a TLS record, and shorter than an event.
const moreThanAHeartbeat = 100

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{addr: listener.Addr().String(), silent: make(chan struct{}), swallowed: make(chan struct{})}
	p.swallow = sync.OnceFunc(func() { close(p.swallowed) })
	var copying sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		copying.Wait()
	})
	copying.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := new(net.Dialer).Dial("tcp", target)
			if err != nil {
				_ = near.Close()
				continue
			}
			copying.Go(func() { p.forward(near, far) })
			copying.Go(func() { p.forward(far, near) })
		}
	})
	return p
}

func (p *proxy) silence() { close(p.silent) }

func (p *proxy) forward(from, to net.Conn) {
	defer func() { _ = to.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		select {
		case <-p.silent:
			if n > moreThanAHeartbeat {
				p.swallow()
			}
			continue
		default:
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// testCrash publishes a stream as the control plane's outbox does, and has the
// broker die in the middle of it: what was confirmed must be there, in order.
func testCrash(t *testing.T, b *broker.Broker) {
	p := publisher(t, config(b, broker.UserControlPlane))
	got, _, ready := consume(t, config(b, broker.UserRunner), rabbitmq.RunnerQueue("crash"))
	await.Receive(t, ready, "the queue")
	// RabbitMQ 3.10 notes a new quorum queue on disk a moment late, and one that it
	// lost so has no leader ever after. That is not what is tested here.
	_, err := b.Ctl(t.Context(), "eval", "dets:sync(ra_directory_reverse).")
	require.NoError(t, err)
	const batch = 250
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	// The stream goes on until the broker is back, so that the crash hits it.
	var outbox []announce.Event
	count, failures := uint64(0), 0
	underWay, back, sent := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if len(outbox) == 0 {
				if count >= 8*batch && isClosed(back) {
					break
				}
				outbox = makeEvents(t, "crash", count+1, count+batch)
				count += batch
			}
			call, done := context.WithTimeout(ctx, 10*time.Second)
			n, err := p.Publish(call, encoded(t, outbox))
			done()
			if outbox = outbox[n:]; err != nil {
				failures++
			} else if count == 4*batch {
				close(underWay)
			}
		}
		sent <- ctx.Err()
	}()
	await.Closed(t, underWay, "the first events")
	require.NoError(t, b.Kill())
	await.Until(t, "the loss to be noticed", func() bool { return !p.Connected() })
	require.NoError(t, b.Start(ctx))
	close(back)
	err = await.Receive(t, sent, "the end of the stream")
	require.NoError(t, err, "%d events were not sent: %v; %v", len(outbox), err, p.Status().Err)
	events := got.until(t, "every event", func(e []announce.Event) bool { return complete(sequences(e, "crash"), count) })
	late, again := account(events, "crash")
	t.Logf("%d events, %d failed calls, %d again, %d late", count, failures, again, late)
	// What was on its way to the consumer at the crash is handed out again, before its successors.
	assert.LessOrEqual(t, late, 0, "events came late")
}

// complete reports whether each of 1 to count is there.
func complete(seq []uint64, count uint64) bool {
	heard := map[uint64]bool{}
	for _, n := range seq {
		heard[n] = true
	}
	return uint64(len(heard)) == count && heard[1] && heard[count]
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}
