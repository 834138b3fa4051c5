package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/faultproxy"
)

// How long faults last at most. Half a minute is six heartbeats, after which the agent is announced
// as offline.
const (
	longCut   = 30 * time.Second
	longDown  = 15 * time.Second
	longHeld  = 20 * time.Second
	apiHeld   = 8 * time.Second // Kubernetes' own parts must survive it too
	healLimit = 2 * time.Minute
)

// The parts that are not wires, and the names of the faults that kill.
const (
	brokerName    = "RabbitMQ"
	databaseName  = "PostgreSQL"
	apiServerName = "API server"
	planeName     = "control plane" // and a number
	agentPrefix   = "agent-"        // and a number
	killed        = "killed"
)

// process can be ended and held.
type process interface {
	Kill() error
	Hold() error
	Resume() error
}

// parts returns everything that can fail.
func (c *chaos) parts() []part {
	var all []part
	for _, p := range c.planes {
		all = append(all, c.own(p.name, p, p.Start))
	}
	for _, a := range c.agents {
		all = append(all, c.own(a.name, a, a.Start))
	}
	all = append(all, c.brokerPart(), c.apiServerPart())
	if c.postgres != nil {
		all = append(all, c.postgresPart())
	}
	for _, name := range c.wireNames() {
		all = append(all, wirePart(c.wires[name]))
	}
	return all
}

func (c *chaos) wireNames() []string {
	var names []string
	for name := range c.wires {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// suspension is a fault in which a process is suspended.
func suspension(hold, resume func() error) kind {
	return kind{name: "held", weight: 2, longest: longHeld,
		begin: func(context.Context) error { return hold() },
		end:   func(context.Context) error { return resume() }}
}

// own returns a process of the product as a part.
func (c *chaos) own(name string, p process, start func() error) part {
	return part{name, []kind{
		{name: killed, weight: 3, kills: true, longest: longDown,
			begin: func(context.Context) error {
				c.kills.add(name, time.Now())
				return p.Kill()
			},
			end: func(context.Context) error { return start() }},
		suspension(p.Hold, p.Resume),
	}}
}

func (c *chaos) brokerPart() part {
	b := c.sys.Broker
	return part{brokerName, []kind{
		{name: killed, weight: 2, longest: longDown, begin: b.Kill, end: b.Start},
		suspension(b.Hold, b.Resume),
	}}
}

func (c *chaos) postgresPart() part {
	p := c.postgres
	return part{databaseName, []kind{
		{name: killed, weight: 3, longest: longDown,
			begin: func(context.Context) error { return p.Crash() }, end: p.Restart},
		suspension(p.Hold, p.Resume),
	}}
}

func (c *chaos) apiServerPart() part {
	signal := func(s syscall.Signal) func(context.Context) error {
		return func(context.Context) error { return c.sys.Cluster.SignalComponent("kube-apiserver", s) }
	}
	return part{apiServerName, []kind{
		{name: killed, weight: 1, begin: signal(syscall.SIGKILL)}, // it restarts by itself
		{name: "held", weight: 2, longest: apiHeld, begin: signal(syscall.SIGSTOP), end: signal(syscall.SIGCONT)},
	}}
}

// wirePart returns a wire as a part that fails as networks do.
func wirePart(w *faultproxy.Proxy) part {
	set := func(c faultproxy.Condition) func(context.Context) error {
		return func(context.Context) error { w.Set(c); return nil }
	}
	well := set(faultproxy.Condition{})
	is := func(name string, c faultproxy.Condition) kind {
		return kind{name: name, weight: 1, longest: longCut, begin: set(c), end: well}
	}
	return part{w.Name, []kind{
		is("cut", faultproxy.Condition{Cut: true}),
		is("silent", faultproxy.Condition{HoldUp: true, HoldDown: true}),
		is("half open, deaf", faultproxy.Condition{HoldUp: true}),
		is("half open, dumb", faultproxy.Condition{HoldDown: true}),
		is("slow", faultproxy.Condition{Delay: 150 * time.Millisecond, Jitter: 250 * time.Millisecond}),
		is("lossy", faultproxy.Condition{Loss: 0.2, Delay: 20 * time.Millisecond}),
		{name: "reset", weight: 1, begin: func(context.Context) error { w.Reset(); return nil }},
	}}
}

// kills records when agents were killed: what they had not yet reported is lost.
type kills struct {
	mu sync.Mutex
	at map[string][]time.Time
}

func (k *kills) add(name string, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.at == nil {
		k.at = map[string][]time.Time{}
	}
	k.at[name] = append(k.at[name], at)
}

func (k *kills) of(names ...string) (all []time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range names {
		all = append(all, k.at[name]...)
	}
	return all
}

// fail carries out a round's faults and returns when all are over. It ends the faults that have
// begun, even if ctx ends.
func (c *chaos) fail(ctx context.Context, faults []fault) error {
	start := time.Now()
	var under sync.WaitGroup
	failed := make(chan error, len(faults))
	for _, f := range faults {
		if !sleep(ctx, time.Until(start.Add(f.at))) {
			break
		}
		under.Go(func() {
			if err := c.inject(ctx, f); err != nil {
				failed <- err
			}
		})
	}
	under.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return ctx.Err()
	}
}

// inject makes one part fail. It skips a part that cannot fail now, such as a broker that is not up
// again yet.
func (c *chaos) inject(ctx context.Context, f fault) error {
	if err := f.do.begin(ctx); err != nil {
		c.say("%s is not %s: %v", f.part, f.kind, err)
		return nil
	}
	c.books.fault(f)
	if f.do.end == nil {
		c.say("%s is %s", f.part, f.kind)
		return nil
	}
	c.say("%s is %s, for %s", f.part, f.kind, f.lasts.Round(100*time.Millisecond))
	sleep(ctx, f.lasts)
	healing, cancel := context.WithTimeout(context.WithoutCancel(ctx), healLimit)
	defer cancel()
	if err := f.do.end(healing); err != nil {
		return fmt.Errorf("%s was %s and cannot be fixed: %w", f.part, f.kind, err)
	}
	c.say("%s is well again", f.part)
	return nil
}

// sleep waits and reports whether ctx is still active.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
