package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/load"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

// results holds all samples of ways, round by round.
type results struct {
	mu      sync.Mutex
	rows    []row
	samples map[row]map[string][]float64
}

// medians are those of a contender.
type medians struct {
	row
	Medians map[string]float64 `json:"medians"`
}

// add is safe for concurrent use: the ways return together.
func (r *results) add(of row, what string, value float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.samples == nil {
		r.samples = map[row]map[string][]float64{}
	}
	if r.samples[of] == nil {
		r.samples[of] = map[string][]float64{}
		r.rows = append(r.rows, of)
	}
	r.samples[of][what] = append(r.samples[of][what], value)
}

func (r *results) closed(c *contender, clients int, got load.Closed) {
	r.add(c.row, fmt.Sprintf("rps.%d", clients), got.PerSecond)
	r.add(c.row, fmt.Sprintf("p50.%d", clients), got.P50)
	r.add(c.row, fmt.Sprintf("p99.%d", clients), got.P99)
}

// took records the CPU time that each of a number of requests or MiB took on all cores, of all sides
// together and of each.
func (r *results) took(c *contender, what string, before map[string]float64, number float64) {
	all := 0.0
	for side, now := range c.cpu() {
		each := (now - before[side]) / number
		all += each
		r.add(c.row, "cpu."+what+"."+side, each)
	}
	r.add(c.row, "cpu."+what, all)
}

// ratio returns the ratio of two contenders.
func (r *results) ratio(of, to row, what string) float64 {
	return run.Ratio(r.samples[of][what], r.samples[to][what])
}

// medians prints and returns those of all contenders.
func (r *results) medians() (all []medians) {
	for _, of := range r.rows {
		m := medians{of, map[string]float64{}}
		fmt.Printf("\n%s %s", of.Way, of.Protocol)
		for _, what := range slices.Sorted(maps.Keys(r.samples[of])) {
			m.Medians[what] = math.Round(100*run.Median(r.samples[of][what])) / 100
			fmt.Printf("  %s %g", what, m.Medians[what])
		}
		all = append(all, m)
	}
	fmt.Println()
	return all
}
