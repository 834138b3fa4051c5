package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/runnerapi/client"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

// neighbour is the other Runner, which sends as much as it can.
const neighbour = "neighbour"

// load is what the neighbour sends from several senders, each as fast as it is answered.
type load struct {
	id      string
	senders int
	send    func(context.Context, *client.Client) error
}

// loads are of each kind of work that an agent does for all Runners.
func (b *streams) loads() []load {
	set, key := largeSet(), runnerapi.Key{Namespace: streamsNamespace, Name: neighbour}
	dry := runnerapi.WriteOptions{DryRun: true}
	absent := runnerapi.Key{Namespace: "kube-system", Name: neighbour}
	return []load{
		{"reads", 64, func(ctx context.Context, c *client.Client) error {
			_, err := c.Apps().List(ctx, streamsNamespace)
			return err
		}},
		{"writes", 32, func(ctx context.Context, c *client.Client) error {
			_, err := c.ConfigMaps().Set(ctx, key, runnerapi.ConfigMapSpec{Data: map[string]string{"a": strings.Repeat("a", 64<<10)}}, runnerapi.WriteOptions{})
			return err
		}},
		{"dry_runs", 32, func(ctx context.Context, c *client.Client) error {
			_, err := c.Apps().Deploy(ctx, key, b.app("-lines", "1"), dry)
			return err
		}},
		{"sets", 8, func(ctx context.Context, c *client.Client) error {
			_, err := c.Manifests().Apply(ctx, key, set, runnerapi.ApplyOptions{WriteOptions: dry})
			return err
		}},
		{"refused", 64, func(ctx context.Context, c *client.Client) error {
			return c.Apps().Delete(ctx, absent, runnerapi.WriteOptions{})
		}},
	}
}

// largeSet returns a set of manifests that takes the agent a while.
func largeSet() []byte {
	var text bytes.Buffer
	for n := range 500 {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: neighbour-%d}\ndata: {a: %s}\n", n, strings.Repeat("a", 2<<10))
	}
	return text.Bytes()
}

// measureTenants sends commands alone and beside each of the neighbour's loads, in turns. All of
// them must succeed.
func (b *streams) measureTenants(ctx context.Context) {
	other := run.Must(b.sys.Dial(ctx, neighbour, name))
	defer other.Close()
	loads := append([]load{{id: "alone"}}, b.loads()...)
	p99 := map[string][]float64{}
	b.InRounds(b.Rounds, func(round int) {
		for _, l := range run.Turns(loads, round) {
			p99[l.id] = append(p99[l.id], run.Percentile(b.beside(ctx, other, l), 0.99))
		}
	})
	var ratios []float64
	for _, l := range loads[1:] {
		ratio := run.Ratio(p99[l.id], p99["alone"])
		b.Say("p99 beside the neighbour's %s, to alone: %.2f", l.id, ratio)
		ratios = append(ratios, ratio)
	}
	b.Add("neighbour_ratio", slices.Max(ratios))
	b.neverRestarted(ctx)
}

// beside returns how long commands take beside a load.
func (b *streams) beside(ctx context.Context, other *client.Client, l load) []float64 {
	sending, stop := context.WithCancel(ctx)
	var senders sync.WaitGroup
	defer func() { stop(); senders.Wait() }()
	for range l.senders {
		senders.Go(func() {
			for sending.Err() == nil {
				_ = l.send(sending, other) // the agent may refuse any of them
			}
		})
	}
	return b.commands(ctx)
}
