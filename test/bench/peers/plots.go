package main

import (
	"fmt"
	"image/color"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"

	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/way"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

var colours = []color.Color{
	color.RGBA{R: 0x1f, G: 0x77, B: 0xb4, A: 0xff}, color.RGBA{R: 0xff, G: 0x7f, B: 0x0e, A: 0xff}, color.RGBA{R: 0x2c, G: 0xa0, B: 0x2c, A: 0xff},
}

// newPlot returns an empty picture, and a function that writes it to a file.
func newPlot(title, x, y string) (*plot.Plot, func(file string)) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.BackgroundColor = color.White
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	return p, func(file string) {
		p.Y.Min = 0
		p.Y.Max *= 1.15 // room for the legend
		run.Check(p.Save(9*vg.Inch, 4*vg.Inch, file))
	}
}

// plot draws the ways beside each other.
func (b *tunnel) plot(dir string) {
	draw := func(file, title, unit string, scale float64, series ...[2]string) {
		p, save := newPlot(title, "", unit)
		var names []string
		for n, s := range series {
			bars := make(plotter.Values, len(b.results.rows)) // 0 for what was not measured
			names = names[:0]
			for i, of := range b.results.rows {
				name := of.Way
				if of.Protocol == way.HTTP2 {
					name += "\nHTTP/2"
				}
				names = append(names, name)
				if samples := b.results.samples[of][s[1]]; len(samples) > 0 {
					bars[i] = run.Median(samples) * scale
				}
			}
			thick := vg.Points(40) / vg.Length(len(series))
			chart := run.Must(plotter.NewBarChart(bars, thick))
			chart.Color, chart.LineStyle.Width = colours[n], 0
			chart.Offset = thick * (vg.Length(n) - vg.Length(len(series)-1)/2)
			p.Add(chart)
			p.Legend.Add(s[0], chart)
		}
		p.NominalX(names...)
		save(filepath.Join(dir, file))
	}
	draw("tunnel-rate.svg", "Requests of 1 KiB, two cores for all", "a second", 1,
		[2]string{"1 client", "rps.1"}, [2]string{"50 clients", "rps.50"}, [2]string{"200 clients", "rps.200"})
	draw("tunnel-latency.svg", "The slowest hundredth of the requests (p99)", "ms", 1e-3, [2]string{"1 client", "p99.1"}, [2]string{"50 clients", "p99.50"})
	draw("tunnel-bulk.svg", "Bulk over loopback", "MB/s", 1, [2]string{"down", "bulk.down"}, [2]string{"up", "bulk.up"})
	draw("tunnel-far.svg", "Bulk at 40 ms round trip", "MB/s", 1, [2]string{"down", "far.down"}, [2]string{"up", "far.up"})
	draw("tunnel-memory.svg", "Resident after 200 clients", "MiB", 1, [2]string{"relay", "memory.relay"}, [2]string{"agent", "memory.agent"})
}

// point is a number after a number of seconds.
type point struct {
	Seconds float64 `json:"s"`
	Count   int     `json:"n"`
}

// plot draws how the agents and the announcements came.
func (c curves) plot(dir string, agents int) {
	add := func(p *plot.Plot, n int, name string, curve []point) {
		points := make(plotter.XYs, len(curve))
		for i, at := range curve {
			points[i].X, points[i].Y = at.Seconds, float64(at.Count)
		}
		line := run.Must(plotter.NewLine(points))
		line.Color, line.Width = colours[n], vg.Points(1.5)
		p.Add(line)
		p.Legend.Add(name, line)
	}
	p, save := newPlot(fmt.Sprintf("%d agents, one control plane", agents), "seconds", "connected and heard")
	add(p, 0, "all connect at once", c.Storm)
	add(p, 1, "the control plane was killed", c.Restart)
	save(filepath.Join(dir, "agents-connect.svg"))
	p, save = newPlot("Announcements over the deaths of RabbitMQ", "seconds", "heard by the Runner")
	add(p, 0, "different ones", c.Announcements)
	save(filepath.Join(dir, "agents-announcements.svg"))
}
