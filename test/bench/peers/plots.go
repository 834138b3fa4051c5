package main

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/chart"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/way"
)

// plot draws the ways beside each other.
func (r *tunnelResults) plot(dir string) error {
	names := make([]string, len(r.order))
	for i, key := range r.order {
		names[i] = key.Way
		if key.Protocol == way.HTTP2 {
			names[i] += "\nHTTP/2"
		}
	}
	draw := func(file, title, unit string, scale float64, series ...[2]string) error {
		c := chart.Chart{Title: title, Y: unit, Names: names}
		for _, s := range series {
			c.Series = append(c.Series, chart.Series{Name: s[0], Bars: r.bars(s[1], scale)})
		}
		return c.Save(filepath.Join(dir, file))
	}
	return errors.Join(
		draw("tunnel-rate.svg", "Requests of 1 KiB, two cores for all", "a second", 1, [2]string{"1 client", "rps.1"}, [2]string{"50 clients", "rps.50"}, [2]string{"200 clients", "rps.200"}),
		draw("tunnel-latency.svg", "The slowest hundredth of the requests (p99)", "ms", 1e-3, [2]string{"1 client", "p99.1"}, [2]string{"50 clients", "p99.50"}),
		draw("tunnel-bulk.svg", "Bulk over loopback", "MB/s", 1, [2]string{"down", "bulk.down"}, [2]string{"up", "bulk.up"}),
		draw("tunnel-far.svg", "Bulk at 40 ms round trip", "MB/s", 1, [2]string{"down", "far.down"}, [2]string{"up", "far.up"}),
		draw("tunnel-memory.svg", "Resident after 200 clients", "MiB", 1, [2]string{"relay", "memory.relay"}, [2]string{"agent", "memory.agent"}),
	)
}

// bars returns the medians of all ways; 0 for what was not measured.
func (r *tunnelResults) bars(what string, scale float64) []float64 {
	bars := make([]float64, len(r.order))
	for i, key := range r.order {
		if v := r.median(key, what); !math.IsNaN(v) {
			bars[i] = v * scale
		}
	}
	return bars
}

// plot draws how the agents and the announcements came.
func (c agentsCurves) plot(dir string, agents int) error {
	return errors.Join(
		chart.Chart{
			Title: fmt.Sprintf("%d agents, one control plane", agents), X: "seconds", Y: "connected and heard",
			Series: []chart.Series{{Name: "all connect at once", Line: line(c.Storm)}, {Name: "the control plane was killed", Line: line(c.Restart)}},
		}.Save(filepath.Join(dir, "agents-connect.svg")),
		chart.Chart{
			Title: "Announcements over the deaths of RabbitMQ", X: "seconds", Y: "heard by the Runner",
			Series: []chart.Series{{Name: "different ones", Line: line(c.Announcements)}},
		}.Save(filepath.Join(dir, "agents-announcements.svg")),
	)
}

func line(curve []point) [][2]float64 {
	at := make([][2]float64, len(curve))
	for i, p := range curve {
		at[i] = [2]float64{p.Seconds, float64(p.Count)}
	}
	return at
}
