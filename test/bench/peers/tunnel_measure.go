package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/load"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/proc"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/way"
)

const warmUp = 100 * time.Millisecond

// The numbers of clients.
var levels = []int{1, 50, 200}

// turns returns the contenders in the order of a round: forth and back, so that none is always the
// first.
func turns(all []*contender, round int) []*contender {
	if round%2 == 0 {
		return all
	}
	back := slices.Clone(all)
	slices.Reverse(back)
	return back
}

// peersEvery is in which of the rounds peers take part: they are compared with what is far from its
// bound. Direct TLS and ours are in all of them.
const peersEvery = 3

// taking returns those that take part in a round, in their order.
func (b *tunnelBench) taking(round int) []*contender {
	all := turns(b.contenders, round)
	if round%peersEvery == 0 {
		return all
	}
	return slices.DeleteFunc(slices.Clone(all), func(c *contender) bool { return c.name != way.Ours && c.name != way.Direct })
}

func (b *tunnelBench) measureRequests(ctx context.Context) error {
	for round := range b.Rounds {
		for _, level := range levels {
			if b.Clients > 0 && b.Clients != level {
				continue
			}
			for _, c := range b.taking(round) {
				if _, err := load.RunClosed(ctx, c.client, way.BaseURL+load.PathSmall, level, 0, 0); err != nil { // connects
					return fmt.Errorf("%s: %w", c.name, err)
				}
				before := c.at.used()
				got, err := load.RunClosed(ctx, c.client, way.BaseURL+load.PathSmall, level, warmUp, b.Measure)
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				b.results.closed(c, got)
				if round%peersEvery == 0 {
					b.results.add(c.name, c.protocol, besidePeers(level), got.PerSecond)
				}
				b.results.took(c, strconv.Itoa(level), c.at.used().since(before), float64(got.Answered))
			}
		}
		b.say("round %d of %d", round+1, b.Rounds)
	}
	return nil
}

func (b *tunnelBench) measureMemory(context.Context) error {
	for _, i := range b.instances {
		for side, p := range map[string]*proc.Process{roleRelay: i.relay, roleAgent: i.agent} {
			if p == nil {
				continue
			}
			rss, err := proc.Resident(p.PID)
			if err != nil {
				return err
			}
			b.results.add(i.way.Name, way.HTTP1, "memory."+side, float64(rss)/(1<<20))
		}
	}
	return nil
}

func (b *tunnelBench) measureBulk(ctx context.Context) error {
	for round := range b.BulkRounds {
		for _, direction := range []load.Direction{load.Down, load.Up} {
			for _, c := range b.taking(round) {
				before := c.at.used()
				rate, moved, err := load.Bulk(ctx, c.client, way.BaseURL, direction, b.Bulk)
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				b.results.add(c.name, c.protocol, "bulk."+string(direction), rate/1e6)
				b.results.took(c, string(direction), c.at.used().since(before), float64(moved)/(1<<20))
			}
		}
		b.say("round %d of %d", round+1, b.BulkRounds)
	}
	return nil
}

// measureDisturbed compares how the p99 of 50 clients changes on our way with how it does
// on the direct one.
func (b *tunnelBench) measureDisturbed(ctx context.Context) error {
	for round := range b.Rounds {
		for _, c := range turns(b.contenders, round) {
			if c.name != way.Ours && c.name != way.Direct {
				continue
			}
			for _, beside := range []load.Disturbance{load.Alone, load.Stalled, load.FullSpeed} {
				got, err := b.disturbed(ctx, c, beside)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", c.name, beside, err)
				}
				b.results.add(c.name, c.protocol, "beside."+string(beside), micros(got.P99))
			}
		}
		b.say("round %d of %d", round+1, b.Rounds)
	}
	return nil
}

func (b *tunnelBench) disturbed(ctx context.Context, c *contender, beside load.Disturbance) (load.Closed, error) {
	other, err := way.Runner(b.dir, c.at.at.Public, c.protocol)
	if err != nil {
		return load.Closed{}, err
	}
	stop, err := beside.Begin(ctx, other, way.BaseURL)
	if err != nil {
		return load.Closed{}, err
	}
	defer stop()
	return load.RunClosed(ctx, c.client, way.BaseURL+load.PathSmall, 50, 2*warmUp, b.Measure)
}

// measureReconnect kills all relays and starts them again at once. All ways do it at the
// same time: they mostly wait.
func (b *tunnelBench) measureReconnect(ctx context.Context) error {
	var all sync.WaitGroup
	errs := make([]error, len(b.instances))
	for n, i := range b.instances {
		if i.relay == nil {
			continue
		}
		all.Go(func() { errs[n] = b.reconnect(ctx, i) })
	}
	all.Wait()
	for n, err := range errs {
		if err != nil {
			b.say("%s: not back within %s (%v)", b.instances[n].way.Name, b.Reconnect, err)
			if b.instances[n].way.Name == way.Ours {
				return err
			}
		}
	}
	return ctx.Err()
}

func (b *tunnelBench) reconnect(ctx context.Context, i *instance) error {
	i.relay.Kill()
	killed := time.Now()
	if err := i.startRelay(); err != nil {
		return err
	}
	if err := i.await(ctx, b.Reconnect); err != nil {
		return err
	}
	b.results.add(i.way.Name, way.HTTP1, "reconnect", time.Since(killed).Seconds())
	return nil
}

// measureFar measures the ways one after the other: each with a delay line before its
// agent, and the others stopped.
func (b *tunnelBench) measureFar(ctx context.Context, short bool) error {
	for _, i := range b.instances {
		i.stop()
	}
	for _, w := range b.wanted() {
		if short && w.Name != way.Direct && w.Name != way.Ours && w.Name != "frp" {
			continue
		}
		if err := b.far(ctx, w); err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
		b.say("%s", w.Name)
	}
	return nil
}

func (b *tunnelBench) far(ctx context.Context, w way.Way) error {
	i, err := startInstance(w, b.dir, b.RoundTrip/2)
	if err != nil {
		return err
	}
	defer i.stop()
	if err := i.await(ctx, upTimeout); err != nil {
		return err
	}
	contenders, err := b.contendersOf(i)
	if err != nil {
		return err
	}
	for _, c := range contenders {
		for _, level := range levels[:2] {
			got, err := load.RunClosed(ctx, c.client, way.BaseURL+load.PathSmall, level, warmUp, b.Measure)
			if err != nil {
				return err
			}
			b.results.add(c.name, c.protocol, fmt.Sprintf("far.p50.%d", level), micros(got.P50))
			b.results.add(c.name, c.protocol, fmt.Sprintf("far.p99.%d", level), micros(got.P99))
		}
		for _, direction := range []load.Direction{load.Down, load.Up} {
			// Windows open by the round trip: the far way takes longer to get going.
			rate, _, err := load.Bulk(ctx, c.client, way.BaseURL, direction, 3*b.Bulk)
			if err != nil {
				return err
			}
			b.results.add(c.name, c.protocol, "far."+string(direction), rate/1e6)
		}
	}
	return nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
