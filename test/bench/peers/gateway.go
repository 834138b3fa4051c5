package main

import (
	"context"
	"fmt"
	"net"
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
	Bulk     time.Duration `flag:"bulk" usual:"300ms" help:"how long a bulk transfer continues, about"`
	Packets  time.Duration `flag:"packets" usual:"10s" short:"1s" help:"how long each way carries datagrams"`
	Hosts    int           `flag:"hosts" usual:"5000" short:"500" help:"hosts in the table, 50 on each agent"`
	Changes  int           `flag:"changes" usual:"90" short:"3" help:"changed routes, each on another agent"`

	*run.Run
	dir      string
	visitors []*contender
	ports    []*contender // to the App's port
	packets  []*contender // to the App's port of UDP
	signedIn *http.Client // a visitor of the tunnel who has a session
	runner   *http.Client
	results  results
}

const (
	visitorURL = "https://" + way.Host
	otherURL   = "https://" + way.OtherHost
	signInURL  = "https://" + way.SignInHost
	// measuredClients make the calls whose p99 counts.
	visitors, measuredClients = 50, 4
	// floodStart is how long the flood takes to connect.
	floodStart   = time.Second / 2
	hostsOfAgent = 50
	appAddress   = "127.0.68.1:4000"
	// echoAddress is the App's port of UDP, and packetsPerSecond what each way carries to it and
	// back.
	echoAddress      = "127.0.68.1:4001"
	packetsPerSecond = 5000
)

func (b *gateway) Measure(ctx context.Context, r *run.Run) {
	b.Run, b.dir = r, certificates(r)
	r.Step("start all ways, each side in a separate process", func() { b.begin(ctx) })
	r.Step(fmt.Sprintf("requests and bulk, %d rounds in turns", b.Rounds), func() { b.measureWays(ctx) })
	r.Step(fmt.Sprintf("visitors who are signed in, %d rounds", b.Rounds), func() { b.measureSignIn(ctx) })
	r.Step(fmt.Sprintf("bulk at a port, %d rounds", b.Rounds), func() { b.measurePorts(ctx) })
	r.Step(fmt.Sprintf("datagrams at a port for %s", b.Packets), func() { b.measurePackets(ctx) })
	r.Step(fmt.Sprintf("beside a flood, %d rounds", b.Rounds), func() { b.measureBeside(ctx) })
	r.Step(fmt.Sprintf("%d changes of a table of %d hosts, beside visitors", b.Changes, b.Hosts), func() { b.measureChanges(ctx) })
	for _, p := range []way.Protocol{way.HTTP1, way.HTTP2} {
		ours, direct := row{way.GatewayTunnel, p}, row{way.GatewayDirect, p}
		id := "gateway." + string(p) + "."
		r.Add(id+"rate", b.results.ratio(direct, ours, "rps.50"))
		r.Add(id+"p50", b.results.ratio(ours, direct, "p50.1"))
		r.Add(id+"down", b.results.ratio(ours, direct, "bulk.down"))
	}
	ours := b.results.samples[row{way.GatewayTunnel, way.HTTP1}]
	r.Add("gateway.signin.rate", run.Ratio(ours["rps.plain"], ours["rps.signin"]))
	for _, direction := range []string{load.Down, load.Up} {
		at := func(name string) row { return row{name, way.HTTP1} }
		r.Add("gateway.tcp."+direction, b.results.ratio(at(way.PortOurs), at(way.PortDirect), "port."+direction))
		r.Add("gateway.tcp.frp."+direction, b.results.ratio(at(way.PortOurs), at(way.PortFRP), "port."+direction))
	}
	r.Add("gateway.udp.lost", b.results.samples[row{way.PacketsOurs, way.HTTP1}]["lost"][0])
	r.Add("gateway.udp.frp.lost", b.results.samples[row{way.PacketsFRP, way.HTTP1}]["lost"][0])
	for _, what := range []string{"runner", "host"} {
		r.Add("gateway."+what+".p99", run.Ratio(ours[what+".p99.through"], ours[what+".p99.past"]))
	}
}

// begin starts an App, and all ways to it.
func (b *gateway) begin(ctx context.Context) {
	for _, w := range way.ToPorts() {
		i := startInstance(b.Run, w, b.dir, appAddress, 0)
		b.ports = append(b.ports, &contender{row{w.Name, way.HTTP1}, i, way.Plain(i.at.Public)})
	}
	for _, w := range way.ToPackets() {
		i := startInstance(b.Run, w, b.dir, echoAddress, 0)
		b.packets = append(b.packets, &contender{row{w.Name, way.HTTP1}, i, nil})
	}
	load.Echo(ctx, echoAddress)
	b.OnClose(startProcess(b.dir, "app", roleCommand, roleApp, appAddress).Kill)
	for _, w := range way.ToApps() {
		i := startInstance(b.Run, w, b.dir, appAddress, 0)
		for _, p := range []way.Protocol{way.HTTP1, way.HTTP2} {
			client := way.Visitor(b.dir, i.at.Public, p)
			i.await(ctx, client, visitorURL)
			b.visitors = append(b.visitors, &contender{row{w.Name, p}, i, client})
		}
		if w.Name == way.GatewayTunnel {
			b.signedIn = way.Visitor(b.dir, i.at.Public, way.HTTP1)
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

// measureSignIn compares visitors with a session to those of a host that is open to everyone.
func (b *gateway) measureSignIn(ctx context.Context) {
	way.SignIn(ctx, b.signedIn)
	own := row{way.GatewayTunnel, way.HTTP1}
	urls := []string{visitorURL, signInURL}
	b.InRounds(b.Rounds, func(round int) {
		for _, url := range run.Turns(urls, round) {
			what := map[string]string{visitorURL: "rps.plain", signInURL: "rps.signin"}[url]
			b.results.add(own, what, load.RunClosed(ctx, b.signedIn, url+load.PathSmall, visitors, warmUp, b.Duration).PerSecond)
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

// measurePackets counts the datagrams that do not come back, of new flows.
func (b *gateway) measurePackets(ctx context.Context) {
	for _, c := range b.packets {
		c.awaitPackets(ctx)
		b.results.add(c.row, "lost", float64(load.Packets(ctx, c.at.Public, packetsPerSecond, b.Packets)))
	}
}

// measureBeside compares the p99 of a Runner's commands, and of a host, beside a flood of another
// host's visitors: one through the same tunnel, and one past it, which uses the same cores.
func (b *gateway) measureBeside(ctx context.Context) {
	own, past := b.of(way.GatewayTunnel), b.of(way.GatewayDirect)
	measure := func(beside string) {
		for what, of := range map[string]struct {
			client *http.Client
			url    string
		}{"runner": {b.runner, way.BaseURL}, "host": {own.client, visitorURL}} {
			got := load.RunClosed(ctx, of.client, of.url+load.PathSmall, measuredClients, warmUp, b.Duration)
			b.results.add(own.row, what+".p99."+beside, got.P99)
		}
	}
	floods := map[string]*contender{"through": own, "past": past}
	b.InRounds(b.Rounds, func(round int) {
		for _, name := range run.Turns([]string{"through", "past"}, round) {
			// In this process, the flood would add its threads and goroutines to what the measured
			// wait for.
			flood := startProcess(b.dir, "flood", roleCommand, roleFlood, b.dir, floods[name].at.Public)
			run.Rest(ctx, floodStart)
			if !flood.Running() {
				run.Failf("the flood ended: %s", flood.LastLines(8))
			}
			measure(name)
			run.Check(flood.Kill())
		}
	})
}

// of returns the visitors of a way, by HTTP/1.1.
func (b *gateway) of(name string) *contender {
	return b.visitors[slices.IndexFunc(b.visitors, func(c *contender) bool { return c.row == row{name, way.HTTP1} })]
}

// measureChanges counts from the change in the database to the first request that the App answers,
// in a table of many hosts. Meanwhile, other visitors' requests do not fail.
func (b *gateway) measureChanges(ctx context.Context) {
	of := map[string][]string{}
	for i := range b.Hosts {
		id := fmt.Sprint("agent", i/hostsOfAgent)
		of[id] = append(of[id], hostNumber(i))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	routes := way.Table(ctx, filepath.Join(b.dir, "table.db"), of)
	b.measureTable(ctx, routes)
	at := way.Place{Dir: b.dir, Public: "127.0.68.2:4000"}
	follower := product.NewFollower(product.Follower{
		Table: routes.Table, Metrics: product.NewMetrics(prometheus.NewRegistry(), "bench"), Log: zerolog.Nop(),
	})
	served := make(chan error, 2)
	go func() { served <- follower.Run(ctx) }()
	go func() {
		served <- way.ServeTable(ctx, routes, at, func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", appAddress)
		})
	}()
	get := func(client *http.Client, host string) { load.Get(ctx, client, "https://"+host+load.PathSmall) }
	visitor, newcomer := way.Visitor(b.dir, at.Public, way.HTTP2), way.Visitor(b.dir, at.Public, way.HTTP2)
	b.Await(ctx, upTimeout, askEvery, func() { get(visitor, hostNumber(0)) })
	slowest, failed := 0.0, 0.0
	stop := b.Every(time.Millisecond, func() {
		if run.Try(func() { get(visitor, hostNumber(0)) }) != nil {
			failed++
		}
	})
	for i := range b.Changes {
		name := hostNumber(b.Hosts + i)
		begin := time.Now()
		routes.Replace(ctx, fmt.Sprint("agent", 1+i), hostNumber(hostsOfAgent*(1+i)), name)
		follower.Look()
		b.Await(ctx, time.Minute, time.Millisecond, func() { get(newcomer, name) })
		slowest = max(slowest, run.Milliseconds(time.Since(begin)))
	}
	stop()
	b.Add("gateway.change", slowest)
	b.Add("gateway.change.failed", failed)
	cancel()
	run.Check(<-served)
	run.Check(<-served)
}

// measureTable counts the memory of another table of the same hosts.
func (b *gateway) measureTable(ctx context.Context, routes *way.Routes) {
	before := heap()
	table := product.NewTable(routes.Store, time.Now)
	run.Check(table.Refresh(ctx))
	b.Add("gateway.route", float64(heap()-before)/float64(b.Hosts))
	runtime.KeepAlive(table)
}

func hostNumber(i int) string { return fmt.Sprintf("app%d.example.com", i) }

// heap returns how much memory this process has in use, in bytes.
func heap() int64 {
	var now runtime.MemStats
	runtime.GC()
	runtime.GC() // what the first took from pools
	runtime.ReadMemStats(&now)
	return int64(now.HeapAlloc)
}
