package main

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"runtime"
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
	Bulk     time.Duration `flag:"bulk" usual:"300ms" help:"how long a bulk transfer goes on, about"`
	Hosts    int           `flag:"hosts" usual:"1000" help:"hosts in the table, on a tenth as many agents"`
	Changes  int           `flag:"changes" usual:"20" short:"3" help:"changed routes"`

	*run.Run
	dir      string
	flood    *served
	direct   *instance
	visitors []*contender
	runner   *http.Client
	results  results
}

const (
	visitorURL = "https://" + way.Host
	otherURL   = "https://" + way.OtherHost
	// measuredClients make the calls whose p99 counts, and floodClients the flood beside them.
	visitors, measuredClients, floodClients = 50, 4, 50
	hostsOfAgent                            = 10
	lookups                                 = 1_000_000
)

func (b *gateway) Measure(ctx context.Context, r *run.Run) {
	b.Run, b.dir = r, certificates(r)
	r.Step("start all ways, each side in a process of its own", func() { b.begin(ctx) })
	r.Step(fmt.Sprintf("requests and bulk, %d rounds in turns", b.Rounds), func() { b.measureWays(ctx) })
	r.Step(fmt.Sprintf("beside a flood, %d rounds", b.Rounds), func() { b.measureBeside(ctx) })
	r.Step(fmt.Sprintf("a table of %d hosts", b.Hosts), func() { b.measureTable(ctx) })
	for _, p := range []way.Protocol{way.HTTP1, way.HTTP2} {
		ours, direct := row{way.GatewayTunnel, p}, row{way.GatewayDirect, p}
		id := "gateway." + string(p) + "."
		r.Add(id+"rate", b.results.ratio(direct, ours, "rps.50"))
		r.Add(id+"p50", b.results.ratio(ours, direct, "p50.1"))
		r.Add(id+"down", b.results.ratio(ours, direct, "bulk.down"))
	}
	r.Add("gateway.ahead.frp", b.results.ratio(row{way.GatewayTunnel, way.HTTP2}, row{way.GatewayFRP, way.HTTP2}, "rps.50"))
	ours := b.results.samples[row{way.GatewayTunnel, way.HTTP1}]
	for _, what := range []string{"runner", "host"} {
		r.Add("gateway."+what+".p99", run.Ratio(ours[what+".p99.flood"], ours[what+".p99.alone"]))
		r.Add("gateway."+what+".p99.past", run.Ratio(ours[what+".p99.flood past"], ours[what+".p99.alone"]))
	}
	r.Detail = b.results.medians()
}

// begin starts an App, a flood, and all ways to the App.
func (b *gateway) begin(ctx context.Context) {
	const address = "127.0.68.1:4000"
	b.OnClose(startProcess(b.dir, "app", roleCommand, roleApp, address).Kill)
	b.flood = startServed(ctx, b.Run, b.dir, "flood", roleCommand, roleFlood)
	for _, w := range way.ToApps() {
		i := startInstance(b.Run, w, b.dir, address, 0)
		for _, p := range []way.Protocol{way.HTTP1, way.HTTP2} {
			if w.Name == way.GatewayFRP && p == way.HTTP1 { // frpc makes a connection for each request
				continue
			}
			client := way.Visitor(b.dir, i.at.Public, p)
			i.await(ctx, client, visitorURL, upTimeout)
			b.visitors = append(b.visitors, &contender{row{w.Name, p}, i, client})
		}
		switch w.Name {
		case way.GatewayDirect:
			b.direct = i
		case way.GatewayTunnel:
			b.runner = way.Runner(b.dir, i.at.RelaySpare[0], way.HTTP2)
			i.await(ctx, b.runner, way.BaseURL, upTimeout)
		}
		b.Say("%-15s %s", w.Name, w.Note)
	}
}

func (b *gateway) measureWays(ctx context.Context) {
	b.InRounds(b.Rounds, func(round int) {
		for _, c := range run.Turns(b.visitors, round) {
			for _, clients := range []int{1, visitors} {
				b.results.closed(c, clients, load.RunClosed(ctx, c.client, visitorURL+load.PathSmall, clients, warmUp, b.Duration))
			}
			rate, _ := load.Bulk(ctx, c.client, visitorURL, load.Down, b.Bulk)
			b.results.add(c.row, "bulk.down", rate/1e6)
		}
	})
}

// measureBeside compares the p99 of a Runner's commands, and of a host, with and without a flood of
// another host's visitors through the same tunnel. The same flood past the tunnel shows how much of
// it the machine's cores are.
func (b *gateway) measureBeside(ctx context.Context) {
	own := b.visitors[slices.IndexFunc(b.visitors, func(c *contender) bool { return c.row == row{way.GatewayTunnel, way.HTTP1} })]
	measure := func(what, beside, address string, client *http.Client, url string) {
		run.Parallel(ctx, 2, -1, func(ctx context.Context, i int) {
			if i == 0 {
				got := load.RunClosed(ctx, client, url+load.PathSmall, measuredClients, warmUp, b.Duration)
				b.results.add(own.row, what+".p99."+beside, got.P99)
			} else if address != "" { // for as long as the measurement and a little longer
				b.flood.call(ctx, "Flood.Send", Surge{Dir: b.dir, Address: address, For: b.Duration + 2*warmUp}, new(int))
			}
		})
	}
	b.InRounds(b.Rounds, func(int) {
		for _, beside := range [][2]string{{"alone", ""}, {"flood", own.at.Public}, {"flood past", b.direct.at.Public}} {
			measure("runner", beside[0], beside[1], b.runner, way.BaseURL)
			measure("host", beside[0], beside[1], own.client, visitorURL)
		}
	})
}

// Flood makes the requests of many visitors. It is a process of its own: in the process of the
// measured clients, it would add its own threads and goroutines to what they wait for.
type Flood struct {
	clients map[string]*http.Client // by the address that they call
}

// Surge is one flood.
type Surge struct {
	Dir, Address string
	For          time.Duration
}

// Send sends requests to an address until the time is over.
func (f *Flood) Send(s Surge, answered *int) error {
	return run.Try(func() {
		if f.clients[s.Address] == nil {
			f.clients[s.Address] = way.Visitor(s.Dir, s.Address, way.HTTP1)
		}
		*answered = load.RunClosed(context.Background(), f.clients[s.Address], otherURL+load.PathSmall, floodClients, 0, s.For).Answered
	})
}

func tableHost(i int) string  { return fmt.Sprintf("app%d.example.com", i) }
func tableAgent(i int) string { return fmt.Sprintf("agent%d", i) }

// measureTable measures memory, lookups and changes in a table of many hosts.
func (b *gateway) measureTable(ctx context.Context) {
	of := map[string][]string{}
	for i := range b.Hosts {
		id := tableAgent(i / hostsOfAgent)
		of[id] = append(of[id], tableHost(i))
	}
	routes := way.Table(ctx, filepath.Join(b.dir, "table.db"), of)
	before := heap()
	another := product.NewTable(routes.Store, time.Now) // of the same database
	run.Check(another.Refresh(ctx))
	b.Add("gateway.memory", max(0, heap()-before)/float64(b.Hosts)/1000)
	runtime.KeepAlive(another)
	begin := time.Now()
	for i := range lookups {
		if _, ok := routes.Table.Lookup(tableHost(i % b.Hosts)); !ok {
			run.Failf("%s is not in the table", tableHost(i%b.Hosts))
		}
	}
	b.Add("gateway.lookup", run.Milliseconds(time.Since(begin))*1e3/lookups)
	b.measureChanges(ctx, routes)
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// measureChanges counts from the change in the database to the first lookup that finds it.
func (b *gateway) measureChanges(ctx context.Context, routes *way.Routes) {
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
		routes.Put(ctx, tableAgent(i%(b.Hosts/hostsOfAgent)), name)
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
