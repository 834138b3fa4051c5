package web

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// The size of a chart in its own units. The style sheet stretches it.
const (
	chartWidth  = 600
	chartHeight = 120
	// chartRows is how many rows the table beside a chart has at most.
	chartRows = 12
)

// Chart is a series over time, as a picture and as words: template "chart". It is drawn here and
// not in the browser, so that it needs no script.
type Chart struct {
	Title                       string
	Last, Lowest, Average, Most string
	Start, End                  time.Time
	Line, Area                  string // paths of the picture, with gaps where values are missing
	Points                      []ChartPoint
	Rows                        []ChartPoint // some of the points, for a table
	Width, Height               int
}

// ChartPoint is one value, with the strip of the picture that it is in the middle of.
type ChartPoint struct {
	Time     time.Time
	Text     string
	X, Width float64
}

// Empty reports whether the series has no values.
func (c Chart) Empty() bool { return len(c.Points) == 0 }

// NewChart draws values that follow each other by step; nil is a missing one. Text returns a value
// with its unit.
func NewChart(title string, text func(float64) string, start time.Time, step time.Duration, values []*float64) Chart {
	c := Chart{Title: title, Start: start, End: start.Add(time.Duration(max(len(values)-1, 0)) * step), Width: chartWidth, Height: chartHeight}
	lowest, most, sum, n := math.Inf(1), math.Inf(-1), 0.0, 0
	for _, v := range values {
		if v != nil {
			lowest, most, sum, n = min(lowest, *v), max(most, *v), sum+*v, n+1
			c.Last = text(*v)
		}
	}
	if n == 0 {
		return c
	}
	c.Lowest, c.Average, c.Most = text(lowest), text(sum/float64(n)), text(most)
	width := chartWidth / float64(max(len(values)-1, 1))
	for i, v := range values {
		if v != nil {
			c.Points = append(c.Points, ChartPoint{start.Add(time.Duration(i) * step), text(*v), max((float64(i)-.5)*width, 0), width})
		}
	}
	every := (len(c.Points) + chartRows - 1) / chartRows
	for i := len(c.Points) - 1; i >= 0; i -= every {
		c.Rows = append(c.Rows, c.Points[i])
	}
	c.draw(values, width, most)
	return c
}

// draw makes the paths. The picture begins at zero, and leaves room above the highest value.
func (c *Chart) draw(values []*float64, width, most float64) {
	if most <= 0 {
		most = 1
	}
	var line, area strings.Builder
	for from := 0; from < len(values); from++ {
		if values[from] == nil {
			continue
		}
		to := from
		for to+1 < len(values) && values[to+1] != nil {
			to++
		}
		fmt.Fprintf(&area, "M%.1f,%d", float64(from)*width, chartHeight)
		for i := from; i <= to; i++ {
			x, y := float64(i)*width, chartHeight-max(*values[i], 0)/most*(chartHeight-4)
			fmt.Fprintf(&line, "%s%.1f,%.1f", map[bool]string{true: "M", false: "L"}[i == from], x, y)
			fmt.Fprintf(&area, "L%.1f,%.1f", x, y)
		}
		if from == to { // a value without neighbours is a point
			line.WriteString("h1")
		}
		fmt.Fprintf(&area, "L%.1f,%dZ", float64(to)*width, chartHeight)
		from = to
	}
	c.Line, c.Area = line.String(), area.String()
}
