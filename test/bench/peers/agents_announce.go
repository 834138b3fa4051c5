package main

import (
	"context"
	"crypto/tls"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce/rabbitmq"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/crowd"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/test/broker"
)

const (
	// drainTimeout is how long the last announcement may take, after all outages.
	drainTimeout = time.Minute
	prefetch     = 500
	// curveEvery is how far points of the curve are apart, in seconds.
	curveEvery = 0.05
)

// listener is a Runner that reads its queue and keeps account.
type listener struct {
	mu sync.Mutex
	ledger
}

// listen consumes the Runner's queue from now on, over all outages.
func (b *agents) listen(ctx context.Context) *listener {
	l, from := &listener{ledger: newLedger()}, b.sys.Broker
	ready := make(chan struct{})
	first := sync.OnceFunc(func() { close(ready) })
	consumer := run.Must(announce.NewConsumer(announce.ConsumerConfig{
		Config: rabbitmq.Config{
			URLs: []string{from.URL(broker.UserRunner)}, TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: from.CAPool()}, Log: zerolog.Nop(),
		},
		Queue: rabbitmq.RunnerQueue(benchRunner), Prefetch: prefetch, Ready: func() { first(); l.use((*ledger).listening) },
	}))
	consuming, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	work.Go(func() {
		_ = consumer.Run(consuming, func(_ context.Context, e announce.Event) error { // it ends on request
			l.use(func(in *ledger) { in.enter(e, time.Now()) })
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

func (l *listener) use(do func(*ledger)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do(&l.ledger)
}

// awaitApps waits for that many different events of Apps.
func (b *agents) awaitApps(ctx context.Context, n int) {
	b.Await(ctx, drainTimeout, askEvery, func() {
		b.consumer.use(func(l *ledger) {
			if l.apps < n {
				run.Failf("%d of %d announcements came", l.apps, n)
			}
		})
	})
}

// announce stops RabbitMQ while the agents send events, and kills it again and again while the
// control plane catches up.
func (b *agents) announce(ctx context.Context) {
	// RabbitMQ 3.10 writes late what it knows of its queues: docs/adr/0045.
	run.Must(b.sys.Broker.Ctl(ctx, "eval", "dets:sync(ra_directory_reverse)."))
	run.Check(b.sys.Broker.Kill())
	b.consumer.use((*ledger).killed)
	start := time.Now()
	b.crowd.call(ctx, "Crowd.Post", crowd.Posting{Agents: b.Tellers, Each: b.Events / b.Tellers}, new(crowd.None))
	b.Add("announced.taken", float64(b.Events)/time.Since(start).Seconds())
	start = time.Now()
	b.consumer.use(func(l *ledger) { l.since = start })
	for kill := 1; kill <= b.Kills; kill++ {
		run.Check(b.sys.Broker.Start(ctx))
		b.awaitApps(ctx, kill*b.Events/(b.Kills+1))
		run.Check(b.sys.Broker.Kill())
		b.consumer.use(func(l *ledger) {
			b.Say("RabbitMQ was killed for the %d. time, %d announcements heard", kill, l.apps)
			l.killed()
		})
	}
	run.Check(b.sys.Broker.Start(ctx))
	_ = run.Try(func() { b.awaitApps(ctx, b.Events) }) // the table shows what is missing
	run.Check(ctx.Err())
	b.consumer.use(func(l *ledger) {
		b.Add("announced.lost", float64(b.Events-l.apps))
		b.Add("announced.disorder", float64(l.disorder))
		b.Add("announced.again", float64(l.again))
		b.Add("announced.rate", l.rate())
		b.curves.Announcements = l.curve
	})
}

// ledger keeps account of announcements: each agent's are numbered without gaps, so that
// what is missing and what came too early is seen.
type ledger struct {
	latest   map[string]uint64 // by agent
	seen     map[string]bool   // by agent and the event's ID
	apps     int               // different events of Apps
	again    int
	disorder int

	// segments are the times between the broker's deaths in which something came.
	segments []segment
	dead     bool // the broker was killed, and its readers have not reconnected
	since    time.Time
	curve    []point
}

// segment is what came in a time.
type segment struct {
	first, last time.Time
	count       int
}

func newLedger() ledger { return ledger{latest: map[string]uint64{}, seen: map[string]bool{}} }

// killed notes that the broker is. What is heard from now on was sent by it before, until another
// one is listened to.
func (l *ledger) killed() { l.dead = true }

// listening notes that a broker is listened to from now on, and starts another segment if the one
// before was killed: a connection that was lost for another reason takes time like everything else.
func (l *ledger) listening() {
	if l.dead {
		l.dead = false
		l.segments = append(l.segments, segment{})
	}
}

// enter takes what came. What came before is known by its ID; what is older than the
// latest and new came too late.
func (l *ledger) enter(e announce.Event, now time.Time) {
	id := e.AgentID + "/" + e.ID
	if l.seen[id] {
		l.again++
		return
	}
	l.seen[id] = true
	if e.Sequence < l.latest[e.AgentID] {
		l.disorder++
	}
	l.latest[e.AgentID] = max(l.latest[e.AgentID], e.Sequence)
	if e.Type.IsApp() {
		l.apps++
	}
	if len(l.segments) == 0 {
		return
	}
	s := &l.segments[len(l.segments)-1]
	if s.count++; s.count == 1 {
		s.first = now
	}
	s.last = now
	if at := now.Sub(l.since).Seconds(); len(l.curve) == 0 || at-l.curve[len(l.curve)-1].Seconds >= curveEvery {
		l.curve = append(l.curve, point{at, l.apps})
	}
}

// rate returns how many came a second while any came.
func (l *ledger) rate() float64 {
	var count int
	var took time.Duration
	for _, s := range l.segments {
		count += s.count
		took += s.last.Sub(s.first)
	}
	if took <= 0 {
		return 0
	}
	return float64(count) / took.Seconds()
}
