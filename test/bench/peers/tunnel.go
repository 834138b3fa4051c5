package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/bench/figures"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/load"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/way"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

// tunnel measures the tunnel beside its peers. It has many short turns and not few long ones: a
// virtual machine changes its speed for seconds at a time, and compared values must be from the
// same moment.
type tunnel struct {
	Rounds     int           `flag:"rounds" usual:"40" short:"1" help:"rounds of requests, in which the ways take turns"`
	Duration   time.Duration `flag:"measure" usual:"250ms" short:"400ms" help:"how long each way is measured in a round, at each number of clients"`
	BulkRounds int           `flag:"bulk-rounds" usual:"15" short:"1" help:"rounds of bulk, of the same kind"`
	Bulk       time.Duration `flag:"bulk" usual:"300ms" short:"200ms" help:"how long a bulk transfer continues, about"`
	RoundTrip  time.Duration `flag:"round-trip" usual:"40ms" help:"the long way's round trip"`

	*run.Run
	dir        string
	instances  []*instance
	contenders []*contender
	results    results
}

// The numbers of clients.
var levels = []int{1, 50, 200}

func (b *tunnel) Measure(ctx context.Context, r *run.Run) {
	b.Run, b.dir = r, certificates(r)
	r.Step("start all ways, each side in a separate process", func() { b.begin(ctx) })
	r.Step(fmt.Sprintf("requests of 1, 50 and 200 clients, %d rounds in turns", b.Rounds), func() { b.measureRequests(ctx) })
	r.Step(fmt.Sprintf("bulk down and up, %d rounds", b.BulkRounds), func() { b.measureBulk(ctx) })
	r.Step(fmt.Sprintf("50 clients beside a download, stalled and at full speed, %d rounds", b.Rounds), func() { b.measureBeside(ctx) })
	r.Step(fmt.Sprintf("the same at a round trip of %s", b.RoundTrip), func() { b.measureFar(ctx) })
	b.figures()
	r.Tables = []figures.Table{b.results.table()}
}

// certificates returns a directory with the certificates of all sides.
func certificates(r *run.Run) string {
	dir := run.Must(os.MkdirTemp("", "pipeops-bench-"))
	r.OnClose(func() error { return os.RemoveAll(dir) })
	way.NewCertificates(dir)
	return dir
}

// begin starts all ways. They stay up together: unused ones take almost no CPU.
func (b *tunnel) begin(ctx context.Context) {
	for _, w := range way.All() {
		b.instances = append(b.instances, startInstance(b.Run, w, b.dir, "", 0))
	}
	for _, i := range b.instances {
		i.await(ctx, way.Runner(b.dir, i.at.Public, way.HTTP1), way.BaseURL)
		b.contenders = append(b.contenders, b.contendersOf(i)...)
	}
}

func compared(name string) bool { return name == way.Ours || name == way.Direct }

// contendersOf adds HTTP/2 on the ways that bounds compare.
func (b *tunnel) contendersOf(i *instance) (all []*contender) {
	for _, p := range []way.Protocol{way.HTTP1, way.HTTP2} {
		if p == way.HTTP1 || compared(i.way.Name) {
			all = append(all, &contender{row{i.way.Name, p}, i, way.Runner(b.dir, i.at.Public, p)})
		}
	}
	return all
}

func (b *tunnel) measureRequests(ctx context.Context) {
	b.InRounds(b.Rounds, func(round int) {
		for _, level := range levels {
			for _, c := range run.Turns(b.contenders, round) {
				load.RunClosed(ctx, c.client, way.BaseURL+load.PathSmall, level, 0, 0) // connects
				got := load.RunClosed(ctx, c.client, way.BaseURL+load.PathSmall, level, warmUp, b.Duration)
				b.results.closed(c, level, got)
			}
		}
	})
}

func (b *tunnel) measureBulk(ctx context.Context) {
	b.InRounds(b.BulkRounds, func(round int) {
		for _, direction := range []string{load.Down, load.Up} {
			for _, c := range run.Turns(b.contenders, round) {
				b.results.add(c.row, "bulk."+direction, load.Bulk(ctx, c.client, way.BaseURL, direction, b.Bulk)/1e6)
			}
		}
	})
}

// measureBeside compares how the p99 of 50 clients changes on our way with how it does on the
// direct one.
func (b *tunnel) measureBeside(ctx context.Context) {
	both := slices.DeleteFunc(slices.Clone(b.contenders), func(c *contender) bool { return !compared(c.Way) })
	b.InRounds(b.Rounds, func(round int) {
		for _, c := range run.Turns(both, round) {
			for _, beside := range []string{"alone", "stalled", "full speed"} {
				end := func() {}
				if beside != "alone" {
					end = load.Beside(ctx, way.Runner(b.dir, c.at.Public, c.Protocol), way.BaseURL, beside == "full speed")
				}
				got := load.RunClosed(ctx, c.client, way.BaseURL+load.PathSmall, 50, 2*warmUp, b.Duration)
				end()
				b.results.add(c.row, "beside."+beside, got.P99)
			}
		}
	})
}

// measureFar measures the ways one after the other: each with a delay line before its agent, and
// the others stopped.
func (b *tunnel) measureFar(ctx context.Context) {
	for _, i := range b.instances {
		i.stop()
	}
	for _, w := range way.All() {
		i := startInstance(b.Run, w, b.dir, "", b.RoundTrip/2)
		i.await(ctx, way.Runner(b.dir, i.at.Public, way.HTTP1), way.BaseURL)
		for _, c := range b.contendersOf(i) {
			for _, direction := range []string{load.Down, load.Up} {
				// Windows open by the round trip: the far way takes longer to get going.
				b.results.add(c.row, "far."+direction, load.Bulk(ctx, c.client, way.BaseURL, direction, 3*b.Bulk)/1e6)
			}
		}
		i.stop()
		b.Say("%s", w.Name)
	}
}

// figures adds the figures that were measured: for each protocol, ours compared to direct.
func (b *tunnel) figures() {
	add := func(id string, measured float64) { b.Add("tunnel."+id, measured) }
	for _, p := range []way.Protocol{way.HTTP1, way.HTTP2} {
		ours, direct := row{way.Ours, p}, row{way.Direct, p}
		for id, what := range map[string]string{
			"rps50": "rps.50", "rps200": "rps.200", "p99": "p99.50", "p50": "p50.1", "down": "bulk.down", "up": "bulk.up",
		} {
			add(string(p)+"."+id, b.results.ratio(ours, direct, what))
		}
		change := func(of row, by string) float64 {
			return run.Ratio(b.results.samples[of]["beside."+by], b.results.samples[of]["beside.alone"])
		}
		add(string(p)+".far.down", run.Median(b.results.samples[ours]["far.down"]))
		add(string(p)+".far.up", run.Median(b.results.samples[ours]["far.up"]))
		add(string(p)+".stalled", change(ours, "stalled"))
		add(string(p)+".full", change(ours, "full speed")/change(direct, "full speed"))
	}
	ours := row{way.Ours, way.HTTP1}
	for _, peer := range []string{"chisel", "frp"} {
		for _, level := range levels[1:] {
			add(fmt.Sprintf("ahead.%s.%d", peer, level), b.results.ratio(ours, row{peer, way.HTTP1}, fmt.Sprintf("rps.%d", level)))
		}
	}
}
