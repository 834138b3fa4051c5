// Package figures compares the measurements of the benchmark and the chaos program with the
// product's bounds. It prints them as a table on the terminal, as JSON in docs/bench, and as the
// tables of bench.md and chaos.md in docs/contributing. Only this package defines the bounds.
package figures

import (
	"fmt"
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

// judge gives a figure its bound, or none, and computes whether it holds. Nothing else does.
func (f *Figure) judge(b *Bound) {
	f.Bound, f.Holds = b, nil
	if b != nil {
		holds := b.holds(f.Measured)
		f.Holds = &holds
	}
}

// verdict returns the word for a figure, or none without a bound.
func (f *Figure) verdict() string {
	switch {
	case f.Bound == nil:
		return ""
	case f.Bound.holds(f.Measured):
		return "holds"
	}
	return "broken"
}

// Bound is the most or the least that a figure may be.
type Bound struct {
	AtMost  *float64 `json:"atMost,omitempty"`
	AtLeast *float64 `json:"atLeast,omitempty"`
}

func atMost(n float64) *Bound  { return &Bound{AtMost: &n} }
func atLeast(n float64) *Bound { return &Bound{AtLeast: &n} }

// holds reports whether a figure keeps the bound. What is not a number does not.
func (b *Bound) holds(measured float64) bool {
	return (b.AtMost == nil || measured <= *b.AtMost) && (b.AtLeast == nil || measured >= *b.AtLeast)
}

func (b *Bound) text(unit string) string {
	switch {
	case b == nil:
		return ""
	case b.AtMost != nil:
		return "≤ " + with(spaced(strconv.FormatFloat(*b.AtMost, 'f', -1, 64)), unit)
	case b.AtLeast != nil:
		return "≥ " + with(spaced(strconv.FormatFloat(*b.AtLeast, 'f', -1, 64)), unit)
	}
	return ""
}

// text returns the figure in about three digits. It has more where rounding would move it over its
// bound.
func (f *Figure) text() string {
	if math.IsNaN(f.Measured) || math.IsInf(f.Measured, 0) {
		return fmt.Sprint(f.Measured)
	}
	for digits := digitsOf(f.Measured); ; digits++ {
		text := strconv.FormatFloat(f.Measured, 'f', digits, 64)
		if rounded, err := strconv.ParseFloat(text, 64); err != nil || f.Bound == nil ||
			f.Bound.holds(rounded) == f.Bound.holds(f.Measured) {
			return with(spaced(text), f.Unit)
		}
	}
}

// digitsOf returns how many digits follow the point.
func digitsOf(n float64) int {
	switch n = math.Abs(n); {
	case n >= 100 || n == math.Trunc(n):
		return 0
	case n >= 10:
		return 1
	case n >= 0.1:
		return 2
	}
	return 1 - int(math.Floor(math.Log10(n)))
}

// spaced puts spaces between groups of three digits before the point.
func spaced(number string) string {
	whole, rest, point := strings.Cut(number, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + " " + whole[i:]
	}
	if point {
		rest = "." + rest
	}
	return sign + whole + rest
}

func with(number, unit string) string {
	if unit == "" || strings.HasPrefix(unit, "/") {
		return number + unit
	}
	return number + " " + unit
}
