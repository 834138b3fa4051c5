// Package figures compares the measurements of the benchmark and the chaos program with the
// product's bounds. It prints them as a table on the terminal, as JSON in docs/bench, and as the
// tables of bench.md and chaos.md in docs/contributing. Only this package defines the bounds.
package figures

import (
	"math"
	"strconv"
	"strings"
)

// Figure is one thing that was measured.
type Figure struct {
	ID       string  `json:"id"`
	Title    string  `json:"figure"`
	Unit     string  `json:"unit,omitempty"`
	Measured float64 `json:"measured"`
	// Bound and Holds are nil where there is no bound.
	Bound *Bound `json:"bound,omitempty"`
	Holds *bool  `json:"holds,omitempty"`
}

// Bound is the most or the least that a figure may be.
type Bound struct {
	AtMost  *float64 `json:"atMost,omitempty"`
	AtLeast *float64 `json:"atLeast,omitempty"`
}

func atMost(n float64) *Bound  { return &Bound{AtMost: &n} }
func atLeast(n float64) *Bound { return &Bound{AtLeast: &n} }

// judge gives a figure its bound, or none, and computes whether it holds. Nothing else does.
func (f *Figure) judge(b *Bound) {
	f.Bound, f.Holds = b, nil
	if b != nil {
		f.Holds = new(b.holds(f.Measured))
	}
}

// holds reports whether a figure keeps the bound. What is not a number does not.
func (b *Bound) holds(measured float64) bool {
	return (b.AtMost == nil || measured <= *b.AtMost) && (b.AtLeast == nil || measured >= *b.AtLeast)
}

func (b *Bound) text(unit string) string {
	switch {
	case b == nil:
		return ""
	case b.AtMost != nil:
		return "≤ " + number(*b.AtMost, -1, unit)
	}
	return "≥ " + number(*b.AtLeast, -1, unit)
}

// verdict returns the word for a figure, or none without a bound.
func (f *Figure) verdict(broken string) string {
	switch {
	case f.Bound == nil:
		return ""
	case f.Bound.holds(f.Measured):
		return "holds"
	}
	return broken
}

// text returns the figure in about three digits. It has more where rounding would move it over its
// bound.
func (f *Figure) text() string {
	digits := 0
	switch n := math.Abs(f.Measured); {
	case n >= 100 || n == math.Trunc(n) || math.IsNaN(n):
	case n >= 10:
		digits = 1
	case n >= 0.1:
		digits = 2
	default:
		digits = 1 - int(math.Floor(math.Log10(n)))
	}
	for ; f.Bound != nil && digits < 18; digits++ {
		rounded, err := strconv.ParseFloat(strconv.FormatFloat(f.Measured, 'f', digits, 64), 64)
		if err != nil || f.Bound.holds(rounded) == f.Bound.holds(f.Measured) {
			break
		}
	}
	return number(f.Measured, digits, f.Unit)
}

// number puts spaces between groups of three digits before the point, and the unit behind.
func number(n float64, digits int, unit string) string {
	text := strconv.FormatFloat(n, 'f', digits, 64)
	sign := text[:len(text)-len(strings.TrimLeft(text, "+-"))]
	whole, rest, point := strings.Cut(text[len(sign):], ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + " " + whole[i:]
	}
	if point {
		rest = "." + rest
	}
	if unit != "" && !strings.HasPrefix(unit, "/") {
		unit = " " + unit
	}
	return sign + whole + rest + unit
}
