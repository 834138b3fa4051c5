package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	product "github.com/pipeops/pipeops-vm-agent/internal/controlplane/gateway"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/load"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/way"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

// gateway measures the ways from a visitor to an App.
type gateway struct {
	Rounds   int           `flag:"rounds" usual:"40" short:"2" help:"rounds in which the ways take turns"`
	Duration time.Duration `flag:"measure" usual:"250ms" help:"how long each way is measured in a round"`
	Bulk     time.Duration `flag:"bulk" usual:"300ms" help:"how long a bulk transfer continues, about"`
	Hosts    int           `flag:"hosts" usual:"1000" help:"hosts in the table, on a tenth as many agents"`
	Changes  int           `flag:"changes" usual:"20" short:"3" help:"changed routes"`

	*run.Run
	dir      string
	visitors []*contender
	ports    []*contender // to the App's port
	runner   *http.Client
	results  results
}

const (
	visitorURL = "https://" + way.Host
	otherURL   = "https://" + way.OtherHost
	// measuredClients make the calls whose p99 counts.
	visitors, measuredClients = 50, 4
	// floodStart is how long the flood takes to connect.
	floodStart   = time.Second / 2
	hostsOfAgent = 10
)

func (b *gateway) Measure(ctx context.Context, r *run.Run) {
	b.Run, b.dir = r, certificates(r)
	r.Step("start all ways, each side in a separate process", func() { b.begin(ctx) })
	r.Step(fmt.Sprintf("requests and bulk, %d rounds in turns", b.Rounds), func() { b.measureWays(ctx) })
	r.Step(fmt.Sprintf("bulk at a port, %d rounds", b.Rounds), func() { b.measurePorts(ctx) })
	r.Step(fmt.Sprintf("beside a flood, %d rounds", b.Rounds), func() { b.measureBeside(ctx) })
	r.Step(fmt.Sprintf("%d changes of a table of %d hosts", b.Changes, b.Hosts), func() { b.measureChanges(ctx) })
	for _, p := range []way.Protocol{way.HTTP1, way.HTTP2} {
		ours, direct := row{way.GatewayTunnel, p}, row{way.GatewayDirect, p}
		id := "gateway." + string(p) + "."
		r.Add(id+"rate", b.results.ratio(direct, ours, "rps.50"))
		r.Add(id+"p50", b.results.ratio(ours, direct, "p50.1"))
		r.Add(id+"down", b.results.ratio(ours, direct, "bulk.down"))
	}
	for _, direction := range []string{load.Down, load.Up} {
		at := func(name string) row { return row{name, way.HTTP1} }
		r.Add("gateway.tcp."+direction, b.results.ratio(at(way.PortOurs), at(way.PortDirect), "port."+direction))
		r.Add("gateway.tcp.frp."+direction, b.results.ratio(at(way.PortOurs), at(way.PortFRP), "port."+direction))
	}
	ours := b.results.samples[row{way.GatewayTunnel, way.HTTP1}]
	for _, what := range []string{"runner", "host"} {
		r.Add("gateway."+what+".p99", run.Ratio(ours[what+".p99.flood"], ours[what+".p99.alone"]))
	}
}

// begin starts an App, and all ways to it.
func (b *gateway) begin(ctx context.Context) {
	const address = "127.0.68.1:4000"
	for _, w := range way.ToPorts() {
		i := startInstance(b.Run, w, b.dir, address, 0)
		b.ports = append(b.ports, &contender{row{w.Name, way.HTTP1}, i, way.Plain(i.at.Public)})
	}
	b.OnClose(startProcess(b.dir, "app", roleCommand, roleApp, address).Kill)
	for _, w := range way.ToApps() {
		i := startInstance(b.Run, w, b.dir, address, 0)
		for _, p := range []way.Protocol{way.HTTP1, way.HTTP2} {
			client := way.Visitor(b.dir, i.at.Public, p)
			i.await(ctx, client, visitorURL)
			b.visitors = append(b.visitors, &contender{row{w.Name, p}, i, client})
		}
		if w.Name == way.GatewayTunnel {
			b.runner = way.Runner(b.dir, i.at.Runners, way.HTTP2)
			i.await(ctx, b.runner, way.BaseURL)
		}
	}
}

func (b *gateway) measureWays(ctx context.Context) {
	b.InRounds(b.Rounds, func(round int) {
		for _, c := range run.Turns(b.visitors, round) {
			for _, clients := range []int{1, visitors} {
				b.results.closed(c, clients, load.RunClosed(ctx, c.client, visitorURL+load.PathSmall, clients, warmUp, b.Duration))
			}
			b.results.add(c.row, "bulk.down", load.Bulk(ctx, c.client, visitorURL, load.Down, b.Bulk)/1e6)
		}
	})
}

// measurePorts transfers bulk to and from the App's port, without TLS of the visitor's.
func (b *gateway) measurePorts(ctx context.Context) {
	const url = "http://" + way.Host
	for _, c := range b.ports {
		c.await(ctx, c.client, url)
	}
	b.InRounds(b.Rounds, func(round int) {
		for _, direction := range []string{load.Down, load.Up} {
			for _, c := range run.Turns(b.ports, round) {
				b.results.add(c.row, "port."+direction, load.Bulk(ctx, c.client, url, direction, b.Bulk)/1e6)
			}
		}
	})
}

// measureBeside compares the p99 of a Runner's commands, and of a host, with and without a flood of
// another host's visitors through the same tunnel.
func (b *gateway) measureBeside(ctx context.Context) {
	own := b.visitors[slices.IndexFunc(b.visitors, func(c *contender) bool { return c.row == row{way.GatewayTunnel, way.HTTP1} })]
	measure := func(beside string) {
		for what, of := range map[string]struct {
			client *http.Client
			url    string
		}{"runner": {b.runner, way.BaseURL}, "host": {own.client, visitorURL}} {
			got := load.RunClosed(ctx, of.client, of.url+load.PathSmall, measuredClients, warmUp, b.Duration)
			b.results.add(own.row, what+".p99."+beside, got.P99)
		}
	}
	b.InRounds(b.Rounds, func(int) {
		measure("alone")
		// In this process, the flood would add its threads and goroutines to what the measured wait
		// for.
		flood := startProcess(b.dir, "flood", roleCommand, roleFlood, b.dir, own.at.Public)
		run.Rest(ctx, floodStart)
		if !flood.Running() {
			run.Failf("the flood ended: %s", flood.LastLines(8))
		}
		measure("flood")
		run.Check(flood.Kill())
	})
}

// measureChanges counts from the change in the database to the first lookup that finds it, in a
// table of many hosts.
func (b *gateway) measureChanges(ctx context.Context) {
	of := map[string][]string{}
	for i := range b.Hosts {
		id := fmt.Sprint("agent", i/hostsOfAgent)
		of[id] = append(of[id], fmt.Sprintf("app%d.example.com", i))
	}
	routes := way.Table(ctx, filepath.Join(b.dir, "table.db"), of)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	follower := product.NewFollower(product.Follower{
		Table: routes.Table, Metrics: product.NewMetrics(prometheus.NewRegistry(), "bench"), Log: zerolog.Nop(),
	})
	done := make(chan error, 1)
	go func() { done <- follower.Run(ctx) }()
	slowest := 0.0
	for i := range b.Changes {
		name := fmt.Sprintf("new%d.example.com", i)
		begin := time.Now()
		routes.Put(ctx, fmt.Sprint("agent", i%(b.Hosts/hostsOfAgent)), name)
		follower.Look()
		b.Await(ctx, time.Minute, time.Millisecond, func() {
			if _, ok := routes.Table.Lookup(name); !ok {
				run.Failf("%s is not served", name)
			}
		})
		slowest = max(slowest, run.Milliseconds(time.Since(begin)))
	}
	b.Add("gateway.change", slowest)
	cancel()
	run.Check(<-done)
}
