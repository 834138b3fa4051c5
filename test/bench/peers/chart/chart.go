// Package chart draws the benchmark's figures as SVG files (gonum/plot).
package chart

import (
	"image/color"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// Series is a group of bars, or a line.
type Series struct {
	Name string
	// Bars are one value for each of the chart's names; Line is points of x and y.
	Bars []float64
	Line [][2]float64
}

// Chart is one picture. Bound, if not 0, is drawn across it.
type Chart struct {
	Title, X, Y string
	Names       []string // of the groups of bars
	Series      []Series
	Bound       float64
	BoundName   string
}

var colours = []color.Color{
	color.RGBA{R: 0x1f, G: 0x77, B: 0xb4, A: 0xff}, color.RGBA{R: 0xff, G: 0x7f, B: 0x0e, A: 0xff},
	color.RGBA{R: 0x2c, G: 0xa0, B: 0x2c, A: 0xff}, color.RGBA{R: 0x94, G: 0x67, B: 0xbd, A: 0xff},
}

const (
	width  = 9 * vg.Inch
	height = 4 * vg.Inch
)

// Save draws the chart into a file.
func (c Chart) Save(file string) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	p.BackgroundColor = color.White
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	for i, s := range c.Series {
		if err := c.draw(p, i, s); err != nil {
			return err
		}
	}
	if len(c.Names) > 0 {
		p.NominalX(c.Names...)
	}
	if c.Bound != 0 {
		line := plotter.NewFunction(func(float64) float64 { return c.Bound })
		line.Color, line.Dashes = color.RGBA{R: 0xd6, G: 0x27, B: 0x28, A: 0xff}, []vg.Length{vg.Points(4), vg.Points(3)}
		p.Add(line)
		p.Legend.Add(c.BoundName, line)
	}
	p.Y.Min = 0
	p.Y.Max *= 1.15                                                // room for the legend
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { // readable for all users
		return err
	}
	return p.Save(width, height, file)
}

func (c Chart) draw(p *plot.Plot, i int, s Series) error {
	colour := colours[i%len(colours)]
	if len(s.Line) > 0 {
		points := make(plotter.XYs, len(s.Line))
		for n, at := range s.Line {
			points[n].X, points[n].Y = at[0], at[1]
		}
		line, err := plotter.NewLine(points)
		if err != nil {
			return err
		}
		line.Color, line.Width = colour, vg.Points(1.5)
		p.Add(line)
		p.Legend.Add(s.Name, line)
		return nil
	}
	thick := vg.Points(40) / vg.Length(len(c.Series))
	bars, err := plotter.NewBarChart(plotter.Values(s.Bars), thick)
	if err != nil {
		return err
	}
	bars.Color, bars.LineStyle.Width = colour, 0
	bars.Offset = thick * (vg.Length(i) - vg.Length(len(c.Series)-1)/2)
	p.Add(bars)
	p.Legend.Add(s.Name, bars)
	return nil
}
