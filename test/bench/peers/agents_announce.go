package main

import (
	"context"
	"crypto/tls"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
)

const (
	// drainTimeout is how long the last announcement may take after the outage.
	drainTimeout = time.Minute
	prefetch     = 500
)

// ledger keeps account of announcements. test/chaos checks their order.
type ledger struct {
	mu          sync.Mutex
	seen        map[string]bool // by agent and the event's ID
	apps        int             // different events of Apps
	first, last time.Time       // event of an App
}

// enter takes what came. What came before is known by its ID.
func (l *ledger) enter(e announce.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id := e.AgentID + "/" + e.ID
	if l.seen[id] {
		return
	}
	l.seen[id] = true
	if e.Type.IsApp() {
		l.apps++
		l.last = time.Now()
		if l.apps == 1 {
			l.first = l.last
		}
	}
}

// listen consumes the Runner's queue from now on, over the outage.
func (b *agents) listen(ctx context.Context) *ledger {
	l, from := &ledger{seen: map[string]bool{}}, b.sys.Broker
	ready := make(chan struct{})
	consumer := run.Must(announce.NewConsumer(announce.ConsumerConfig{
		Config: rabbitmq.Config{
			URLs: []string{from.URL(broker.UserRunner)}, TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: from.CAPool()}, Log: zerolog.Nop(),
		},
		Queue: rabbitmq.RunnerQueue(benchRunner), Prefetch: prefetch, Ready: sync.OnceFunc(func() { close(ready) }),
	}))
	consuming, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	work.Go(func() {
		_ = consumer.Run(consuming, func(_ context.Context, e announce.Event) error { // it ends on request
			l.enter(e)
			return nil
		})
	})
	b.OnClose(func() error { cancel(); work.Wait(); return nil })
	select {
	case <-ready:
	case <-ctx.Done():
		run.Check(ctx.Err())
	}
	return l
}

// announce stops RabbitMQ while the agents send events, and counts what the Runner receives once it
// is back. test/chaos kills it while announcements go out.
func (b *agents) announce(ctx context.Context) {
	run.Check(b.sys.Broker.Kill(ctx))
	b.crowd[:b.Tellers].Post(ctx, b.Events/b.Tellers)
	run.Check(b.sys.Broker.Start(ctx))
	l := b.consumer
	_ = run.Try(func() { // the table shows what is missing
		b.Await(ctx, drainTimeout, askEvery, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.apps < b.Events {
				run.Failf("%d of %d announcements came", l.apps, b.Events)
			}
		})
	})
	run.Check(ctx.Err())
	l.mu.Lock()
	defer l.mu.Unlock()
	b.Add("announced.lost", float64(b.Events-l.apps))
	b.Add("announced.rate", float64(l.apps)/l.last.Sub(l.first).Seconds())
}
