package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/crowd"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
)

const (
	// drainTimeout is how long the last announcement may take, after all outages.
	drainTimeout = time.Minute
	prefetch     = 500
)

// listener is a Runner that reads its queue and keeps account.
type listener struct {
	ready chan struct{}
	stop  func()

	mu     sync.Mutex
	ledger ledger
	told   chan struct{} // closed at the next event
}

// listen consumes the Runner's queue from now on, over all outages.
func listen(b *broker.Broker) (*listener, error) {
	l := &listener{ready: make(chan struct{}), told: make(chan struct{}), ledger: newLedger()}
	first := sync.OnceFunc(func() { close(l.ready) })
	consumer, err := announce.NewConsumer(announce.ConsumerConfig{
		Config: rabbitmq.Config{
			URLs: []string{b.URL(broker.UserRunner)}, TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: b.CAPool()}, Log: zerolog.Nop(),
		},
		Queue: rabbitmq.RunnerQueue(benchRunner), Prefetch: prefetch, Ready: func() { first(); l.look((*ledger).listening) },
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = consumer.Run(ctx, l.take) // it ends on request
	}()
	l.stop = func() { cancel(); <-ended }
	return l, nil
}

func (l *listener) awaitReady(ctx context.Context) error {
	select {
	case <-l.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *listener) take(_ context.Context, e announce.Event) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ledger.enter(e, time.Now())
	close(l.told)
	l.told = make(chan struct{})
	return nil
}

func (l *listener) look(use func(*ledger)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	use(&l.ledger)
}

// awaitApps waits for that many different events of Apps.
func (l *listener) awaitApps(ctx context.Context, n int) error {
	for {
		l.mu.Lock()
		got, told := l.ledger.apps, l.told
		l.mu.Unlock()
		if got >= n {
			return nil
		}
		select {
		case <-told:
		case <-ctx.Done():
			return fmt.Errorf("%d of %d announcements came: %w", got, n, ctx.Err())
		}
	}
}

// announce stops RabbitMQ while the agents send events, and kills it again and again while the
// control plane catches up.
func (b *agentsBench) announce(ctx context.Context) error {
	// RabbitMQ 3.10 writes late what it knows of its queues: docs/adr/0045.
	if _, err := b.sys.Broker.Ctl(ctx, "eval", "dets:sync(ra_directory_reverse)."); err != nil {
		return err
	}
	if err := b.sys.Broker.Kill(); err != nil {
		return err
	}
	b.consumer.look((*ledger).killed)
	if err := b.post(ctx); err != nil {
		return err
	}
	start := time.Now()
	b.consumer.look(func(l *ledger) { l.drawSince(start) })
	for kill := 1; kill <= b.Kills; kill++ {
		if err := b.sys.Broker.Start(ctx); err != nil {
			return err
		}
		if err := b.awaitShare(ctx, kill); err != nil {
			return err
		}
		if err := b.sys.Broker.Kill(); err != nil {
			return err
		}
		b.consumer.look(func(l *ledger) {
			b.say("RabbitMQ was killed for the %d. time, %d announcements heard", kill, l.apps)
			l.killed()
		})
	}
	if err := b.sys.Broker.Start(ctx); err != nil {
		return err
	}
	draining, end := context.WithTimeout(ctx, drainTimeout)
	defer end()
	if err := b.consumer.awaitApps(draining, b.Events); ctx.Err() != nil {
		return err // otherwise the table shows what is missing
	}
	b.settleAnnounced()
	return nil
}

// awaitShare waits for as many as the Runner shall have heard before RabbitMQ is killed
// for that time.
func (b *agentsBench) awaitShare(ctx context.Context, kill int) error {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	return b.consumer.awaitApps(ctx, kill*b.Events/(b.Kills+1))
}

// post hands the events over to the control plane while there is no broker.
func (b *agentsBench) post(ctx context.Context) error {
	start := time.Now()
	tellers := b.Tellers / b.Processes
	each := b.Events / b.Tellers
	b.Events = tellers * b.Processes * each
	err := b.all(ctx, func(i int) error {
		return b.crowds[i].Call("Crowd.Post", crowd.Posting{Agents: tellers, Each: each}, new(int))
	})
	b.Add("announced.taken", float64(b.Events)/time.Since(start).Seconds())
	return err
}

func (b *agentsBench) settleAnnounced() {
	b.consumer.look(func(l *ledger) {
		b.Add("announced.lost", float64(b.Events-l.apps))
		b.Add("announced.disorder", float64(l.disorder))
		b.Add("announced.again", float64(l.again))
		b.Add("announced.rate", l.rate())
		b.curves.Announcements = l.curve
	})
}
