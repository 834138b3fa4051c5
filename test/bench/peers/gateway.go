package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/rpc"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/bench/figures"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/load"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/proc"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/way"
)

const (
	visitorURL = "https://" + way.Host
	otherURL   = "https://" + way.OtherHost
	// measuredClients make the calls whose p99 counts, and floodClients the flood beside them.
	visitors, measuredClients, floodClients = 50, 4, 50
)

// gatewayBench measures the ways from a visitor to an App.
type gatewayBench struct {
	*progress
	rounds            int
	measure, bulk     time.Duration
	hosts, changes    int
	dir               string
	app, flooding     *proc.Process
	flood             *rpc.Client
	instances         []*instance
	visitors          []*contender
	runner            *http.Client
	results           tunnelResults
	lookup, slowest   time.Duration
	memory            float64
	measuredProtocols []way.Protocol
}

func runGateway(ctx context.Context, args []string) (err error) {
	b := &gatewayBench{progress: &progress{out: os.Stdout, start: time.Now()}, measuredProtocols: []way.Protocol{way.HTTP1, way.HTTP2}}
	flags := flag.NewFlagSet("gateway", flag.ContinueOnError)
	short := flags.Bool("short", false, "two short rounds: for working on what is measured")
	var output figures.Output
	output.Flags(flags)
	flags.IntVar(&b.rounds, "rounds", 40, "rounds in which the ways take turns")
	flags.DurationVar(&b.measure, "measure", 250*time.Millisecond, "how long each way is measured in a round")
	flags.DurationVar(&b.bulk, "bulk", 300*time.Millisecond, "how long a bulk transfer goes on, about")
	flags.IntVar(&b.hosts, "hosts", 1000, "hosts in the table, on a tenth as many agents")
	flags.IntVar(&b.changes, "changes", 20, "changed routes")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *short {
		b.rounds, b.changes = 2, 3
	}
	run, err := figures.Begin(ctx, figures.Gateway, output, *short)
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "pipeops-bench-gateway-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	for _, step := range []struct {
		title string
		do    func(context.Context) error
	}{
		{"start all ways, each side in a process of its own", b.begin},
		{fmt.Sprintf("requests and bulk, %d rounds in turns", b.rounds), b.measureWays},
		{fmt.Sprintf("beside a flood, %d rounds", b.rounds), b.measureBeside},
		{fmt.Sprintf("a table of %d hosts", b.hosts), b.measureTable},
	} {
		if err := b.step(step.title, func() error { return step.do(ctx) }); err != nil {
			return err
		}
	}
	b.figures(run.Set)
	fmt.Println()
	b.results.print(os.Stdout)
	broken := run.Report(os.Stdout)
	if output.Dir != "" {
		err = run.Publish(flags, b.results.rows())
	}
	return errors.Join(err, broken)
}

// begin starts an App, and all ways to it.
func (b *gatewayBench) begin(ctx context.Context) error {
	if err := way.NewCertificates(b.dir); err != nil {
		return err
	}
	addresses, err := freeAddresses(1)
	if err != nil {
		return err
	}
	if b.app, err = proc.Start("the App", filepath.Join(b.dir, "app.log"), roleCommand, roleApp, addresses[0]); err != nil {
		return err
	}
	if b.flooding, b.flood, err = proc.StartServing("the flood", filepath.Join(b.dir, "flood.log"), roleCommand, roleFlood); err != nil {
		return err
	}
	for _, w := range way.ToApps() {
		i, err := startInstanceTo(w, b.dir, addresses[0])
		if err != nil {
			return err
		}
		b.instances = append(b.instances, i)
		for _, p := range b.measuredProtocols {
			if w.Name == way.GatewayFRP && p == way.HTTP1 { // frpc makes a connection for each request
				continue
			}
			client, err := way.Visitor(b.dir, i.at.Public, p)
			if err != nil {
				return err
			}
			if err := i.answers(ctx, client, visitorURL, upTimeout); err != nil {
				return err
			}
			b.visitors = append(b.visitors, &contender{name: w.Name, protocol: p, at: i, client: client})
		}
		if w.Name == way.GatewayTunnel {
			if b.runner, err = way.Runner(b.dir, i.at.RelaySpare[0], way.HTTP2); err != nil {
				return err
			}
			if err := i.answers(ctx, b.runner, way.BaseURL, upTimeout); err != nil {
				return err
			}
		}
		b.say("%-15s %s", w.Name, w.Note)
	}
	return nil
}

func (b *gatewayBench) measureWays(ctx context.Context) error {
	for round := range b.rounds {
		for _, c := range turns(b.visitors, round) {
			for _, clients := range []int{1, visitors} {
				got, err := load.RunClosed(ctx, c.client, visitorURL+load.PathSmall, clients, warmUp, b.measure)
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				b.results.closed(c, got)
			}
			rate, _, err := load.Bulk(ctx, c.client, visitorURL, load.Down, b.bulk)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			b.results.add(c.name, c.protocol, "bulk.down", rate/1e6)
		}
		b.say("round %d of %d", round+1, b.rounds)
	}
	return nil
}

// measureBeside compares the p99 of a Runner's commands, and of a host, with and without a flood of
// another host's visitors through the same tunnel. The same flood past the tunnel shows how much of
// it the machine's cores are.
func (b *gatewayBench) measureBeside(ctx context.Context) error {
	i := slices.IndexFunc(b.visitors, func(c *contender) bool { return c.name == way.GatewayTunnel && c.protocol == way.HTTP1 })
	own := b.visitors[i]
	floods := map[string]string{"flood": own.at.at.Public, "flood past": b.instances[0].at.Public}
	for round := range b.rounds {
		for _, what := range []struct {
			name, url string
			client    *http.Client
		}{{"runner", way.BaseURL, b.runner}, {"host", visitorURL, own.client}} {
			for _, beside := range []string{"alone", "flood", "flood past"} {
				stop := func() error { return nil }
				if address := floods[beside]; address != "" {
					stop = b.floodAt(address)
				}
				got, err := load.RunClosed(ctx, what.client, what.url+load.PathSmall, measuredClients, warmUp, b.measure)
				if err = errors.Join(err, stop()); err != nil {
					return fmt.Errorf("%s, %s: %w", what.name, beside, err)
				}
				b.results.add(way.GatewayTunnel, way.HTTP1, what.name+".p99."+beside, micros(got.P99))
			}
		}
		b.say("round %d of %d", round+1, b.rounds)
	}
	return nil
}

func (b *gatewayBench) figures(set *figures.Set) {
	for _, p := range b.measuredProtocols {
		ours, direct := rowKey{way.GatewayTunnel, p}, rowKey{way.GatewayDirect, p}
		id := "gateway." + string(p) + "."
		set.Add(id+"rate", b.results.ratio(direct, ours, "rps.50"))
		set.Add(id+"p50", b.results.ratio(ours, direct, "p50.1"))
		set.Add(id+"down", b.results.ratio(ours, direct, "bulk.down"))
	}
	ours := rowKey{way.GatewayTunnel, way.HTTP1}
	set.Add("gateway.ahead.frp", b.results.ratio(rowKey{way.GatewayTunnel, way.HTTP2}, rowKey{way.GatewayFRP, way.HTTP2}, "rps.50"))
	for _, what := range []string{"runner", "host"} {
		of := func(beside string) []float64 { return b.results.samples[ours][what+".p99."+beside] }
		set.Add("gateway."+what+".p99", ratioOf(of("flood"), of("alone")))
		set.Add("gateway."+what+".p99.past", ratioOf(of("flood past"), of("alone")))
	}
	set.Add("gateway.lookup", float64(b.lookup)/float64(time.Microsecond))
	set.Add("gateway.change", float64(b.slowest)/float64(time.Millisecond))
	set.Add("gateway.memory", b.memory/1000)
}

// close ends everything and leaves nothing.
func (b *gatewayBench) close() error {
	for _, i := range b.instances {
		i.stop()
	}
	for _, p := range []*proc.Process{b.app, b.flooding} {
		if p != nil {
			p.Kill()
		}
	}
	return os.RemoveAll(b.dir)
}
