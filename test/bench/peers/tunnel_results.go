package main

import (
	"fmt"
	"io"
	"math"
	"sync"
	"text/tabwriter"

	"github.com/pipeops/pipeops-vm-agent/test/bench/figures"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/load"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/way"
)

// tunnelResults holds all samples, round by round.
type tunnelResults struct {
	mu      sync.Mutex
	order   []rowKey
	samples map[rowKey]map[string][]float64
}

// rowKey names a contender.
type rowKey struct {
	Way      string       `json:"way"`
	Protocol way.Protocol `json:"protocol"`
}

// row is a contender with the medians of its measurements.
type row struct {
	rowKey
	Medians map[string]float64 `json:"medians"`
}

// add is safe for concurrent use: the ways return together.
func (r *tunnelResults) add(name string, p way.Protocol, what string, value float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := rowKey{name, p}
	if r.samples == nil {
		r.samples = map[rowKey]map[string][]float64{}
	}
	if r.samples[key] == nil {
		r.samples[key] = map[string][]float64{}
		r.order = append(r.order, key)
	}
	r.samples[key][what] = append(r.samples[key][what], value)
}

func (r *tunnelResults) closed(c *contender, got load.Closed) {
	r.add(c.name, c.protocol, fmt.Sprintf("rps.%d", got.Clients), got.PerSecond)
	r.add(c.name, c.protocol, fmt.Sprintf("p50.%d", got.Clients), micros(got.P50))
	r.add(c.name, c.protocol, fmt.Sprintf("p99.%d", got.Clients), micros(got.P99))
}

// took records the CPU time that a number of requests or MiB took on all cores, of both sides and
// of this process, the load.
func (r *tunnelResults) took(c *contender, what string, used taken, of float64) {
	r.add(c.name, c.protocol, "cpu."+what, micros(used.relay+used.agent+used.load)/of)
	r.add(c.name, c.protocol, "cpu."+what+".relay", micros(used.relay)/of)
	r.add(c.name, c.protocol, "cpu."+what+".agent", micros(used.agent)/of)
	r.add(c.name, c.protocol, "cpu."+what+".load", micros(used.load)/of)
}

// besidePeers returns the key of the rate in rounds with peers.
func besidePeers(level int) string { return fmt.Sprintf("rps.%d.beside peers", level) }

func (r *tunnelResults) median(key rowKey, what string) float64 {
	return load.Median(r.samples[key][what])
}

// ratio returns the median, over the rounds, of the ratio of two figures of the same round.
func (r *tunnelResults) ratio(of, to rowKey, what string) float64 {
	return ratioOf(r.samples[of][what], r.samples[to][what])
}

func ratioOf(of, to []float64) float64 {
	var ratios []float64
	for i := range min(len(of), len(to)) {
		ratios = append(ratios, of[i]/to[i])
	}
	return load.Median(ratios)
}

func (r *tunnelResults) rows() []row {
	var rows []row
	for _, key := range r.order {
		medians := map[string]float64{}
		for what, values := range r.samples[key] {
			medians[what] = math.Round(100*load.Median(values)) / 100
		}
		rows = append(rows, row{key, medians})
	}
	return rows
}

// figures adds the figures that have bounds: for each protocol, ours compared to direct in the same
// round.
func (r *tunnelResults) figures(set *figures.Set) {
	for _, p := range []way.Protocol{way.HTTP1, way.HTTP2} {
		ours, direct := rowKey{way.Ours, p}, rowKey{way.Direct, p}
		if r.samples[ours] == nil {
			continue
		}
		id := "tunnel." + string(p) + "."
		set.Add(id+"rps50", r.ratio(ours, direct, "rps.50"))
		set.Add(id+"rps200", r.ratio(ours, direct, "rps.200"))
		set.Add(id+"p99", r.ratio(ours, direct, "p99.50"))
		set.Add(id+"p50", r.ratio(ours, direct, "p50.1"))
		set.Add(id+"down", r.ratio(ours, direct, "bulk.down"))
		set.Add(id+"up", r.ratio(ours, direct, "bulk.up"))
		set.Add(id+"far.down", r.median(ours, "far.down"))
		set.Add(id+"far.up", r.median(ours, "far.up"))
		set.Add(id+"stalled", r.change(ours, load.Stalled))
		set.Add(id+"full", r.change(ours, load.FullSpeed)/r.change(direct, load.FullSpeed))
	}
	r.ahead(set)
	if ours := (rowKey{way.Ours, way.HTTP1}); r.samples[ours] != nil {
		set.Add("tunnel.reconnect", r.median(ours, "reconnect"))
	}
}

// change returns the effect of a disturbance on the p99.
func (r *tunnelResults) change(key rowKey, by load.Disturbance) float64 {
	return ratioOf(r.samples[key]["beside."+string(by)], r.samples[key]["beside."+string(load.Alone)])
}

func (r *tunnelResults) ahead(set *figures.Set) {
	ours := rowKey{way.Ours, way.HTTP1}
	for _, peer := range []string{"chisel", "konnectivity", "frp"} {
		key := rowKey{peer, way.HTTP1}
		if r.samples[key] == nil || r.samples[ours] == nil {
			continue
		}
		for _, level := range levels[1:] {
			set.Add(fmt.Sprintf("tunnel.ahead.%s.%d", peer, level), r.ratio(ours, key, besidePeers(level)))
		}
	}
}

// columns of the printed table.
var columns = []struct{ title, what, format string }{
	{"RPS@1", "rps.1", "%.0f"}, {"P50@1 µs", "p50.1", "%.0f"}, {"P99@1 µs", "p99.1", "%.0f"},
	{"RPS@50", "rps.50", "%.0f"}, {"P50@50", "p50.50", "%.0f"}, {"P99@50", "p99.50", "%.0f"},
	{"RPS@200", "rps.200", "%.0f"}, {"P50@200", "p50.200", "%.0f"}, {"P99@200", "p99.200", "%.0f"},
	{"DOWN MB/s", "bulk.down", "%.0f"}, {"UP MB/s", "bulk.up", "%.0f"},
	{"FAR DOWN", "far.down", "%.0f"}, {"FAR UP", "far.up", "%.0f"}, {"FAR P50@50 µs", "far.p50.50", "%.0f"},
	{"CPU@50 µs", "cpu.50", "%.1f"}, {"CPU@200 µs", "cpu.200", "%.1f"}, {"CPU DOWN µs/MiB", "cpu.down", "%.0f"}, {"CPU UP", "cpu.up", "%.0f"},
	{"RELAY MiB", "memory.relay", "%.0f"}, {"AGENT MiB", "memory.agent", "%.0f"}, {"BACK s", "reconnect", "%.1f"},
}

func (r *tunnelResults) print(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(table, "WAY\t")
	for _, c := range columns {
		fmt.Fprint(table, c.title+"\t")
	}
	fmt.Fprintln(table)
	for _, key := range r.order {
		fmt.Fprintf(table, "%s %s\t", key.Way, key.Protocol)
		for _, c := range columns {
			if v := r.median(key, c.what); math.IsNaN(v) {
				fmt.Fprint(table, "\t")
			} else {
				fmt.Fprintf(table, c.format+"\t", v)
			}
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush() // an error has no receiver
	fmt.Fprintln(out)
}
