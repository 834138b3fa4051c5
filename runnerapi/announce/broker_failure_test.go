package announce_test

import (
	"context"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/await"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// The network holds everything that the broker sends, like a firewall that forgot a connection:
// Publish ends with its context and returns what was not confirmed.
func TestPublish_EndsOnSilentNetwork(t *testing.T) {
	t.Parallel()
	b := rabbit.VHost(t)
	wire := faultproxy.New(t, b.Address())
	cfg := config(b, broker.UserControlPlane)
	cfg.URLs = []string{b.URLAt(broker.UserControlPlane, wire.Addr())}
	p, ch := publisher(t, cfg), broker.Channel(t, b, broker.UserControlPlane)
	announced(t, p, makeEvents(t, "before", 1, 1)) // the exchange is there
	queue := rabbitmq.RunnerQueue("order")
	_, err := rabbitmq.DeclareQueue(ch, queue)
	require.NoError(t, err)
	announced(t, p, makeEvents(t, "silent", 1, 1))

	wire.Set(faultproxy.Condition{HoldDown: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	confirmed, failed, events := -1, make(chan error, 1), encoded(t, makeEvents(t, "silent", 2, 2))
	go func() {
		var err error
		confirmed, err = p.Publish(ctx, events)
		failed <- err
	}()
	await.Until(t, "the broker has the second event", func() bool { return messages(ch, queue.Name) == 2 })
	cancel()
	err = await.Receive(t, failed, "the end of Publish")
	assert.Equal(t, rabbitmq.CodeUnconfirmed, rabbitmq.CodeOf(err), err)
	assert.Zero(t, confirmed)
	// The publisher gives the connection up, and run waits no longer than it may.
}

// messages returns how many messages wait in a queue, or -1.
func messages(ch *amqp.Channel, queue string) int {
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		return -1
	}
	return q.Messages
}

// testCrash publishes a stream as the control plane's outbox does, and has the
// broker die in the middle of it: what was confirmed must be there, in order.
func testCrash(t *testing.T, b *broker.Broker) {
	p := publisher(t, config(b, broker.UserControlPlane))
	got, _, ready := consume(t, config(b, broker.UserRunner), rabbitmq.RunnerQueue("crash"))
	await.Receive(t, ready, "the queue")
	const batch = 250
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	// The stream continues until the broker is back, so that the crash hits it.
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
	require.NoError(t, b.Kill(ctx))
	await.Until(t, "the loss to be noticed", func() bool { return !p.Connected() })
	require.NoError(t, b.Start(ctx))
	close(back)
	err := await.Receive(t, sent, "the end of the stream")
	require.NoError(t, err, "%d events were not sent: %v; %v", len(outbox), err, p.Status().Err)
	events := got.until(t, "every event", func(e []announce.Event) bool { return complete(sequences(e, "crash"), count) })
	late, again := account(events, "crash")
	t.Logf("%d events, %d failed calls, %d again, %d late", count, failures, again, late)
	// What was on its way to the consumer at the crash is handed out again, before its successors.
	assert.Zero(t, late, "events came late")
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

// Two brokers die in turn. Each time the publisher and the consumer go on at the other.
func TestBrokers_Failover(t *testing.T) {
	suite.Release(t, "brokers and receivers that die again and again")
	t.Parallel()
	both := []*broker.Broker{broker.OwnForTest(t), broker.OwnForTest(t)}
	brokers, urls := map[string]*broker.Broker{}, map[string][]string{}
	tls := both[0].TLSConfig()
	tls.RootCAs = tls.RootCAs.Clone()
	for _, b := range both {
		brokers[net.JoinHostPort("127.0.0.1", strconv.Itoa(b.Port()))] = b
		for _, user := range []string{broker.UserControlPlane, broker.UserRunner} {
			urls[user] = append(urls[user], b.URL(user))
		}
		if pem, err := os.ReadFile(b.CAFile()); err != nil || !tls.RootCAs.AppendCertsFromPEM(pem) {
			t.Fatal("no CA: ", err)
		}
	}
	cfg := func(user string) rabbitmq.Config {
		return rabbitmq.Config{URLs: urls[user], TLS: tls, Log: zerolog.Nop()}
	}
	p := publisher(t, cfg(broker.UserControlPlane))
	announced(t, p, makeEvents(t, "warm", 1, 1)) // the topology is at one of them
	got, c, _ := consume(t, cfg(broker.UserRunner), rabbitmq.RunnerQueue("order"))
	sequence, visited := uint64(0), map[string]bool{}
	for round := range 2 {
		at := p.Status().Broker
		visited[at] = true
		require.NoError(t, brokers[at].Kill(t.Context()))
		await.Until(t, "the publisher to be at the other", func() bool { return p.Connected() && p.Status().Broker != at })
		await.Until(t, "the consumer to be at the other", func() bool {
			s := c.Status()
			return s.Connected && s.Broker == p.Status().Broker
		})
		sequence++
		announced(t, p, makeEvents(t, "moving", sequence, sequence))
		got.until(t, "the announcement at the other", func(e []announce.Event) bool {
			n := sequences(e, "moving")
			return len(n) > 0 && n[len(n)-1] == sequence
		})
		if round > 0 {
			break
		}
		require.NoError(t, brokers[at].Start(t.Context()))
	}
	assert.Len(t, visited, 2)
}
