// Package figures compares the measurements of the benchmark and the chaos program with the
// product's bounds. It prints them as a table on the terminal, as JSON in docs/bench, and as the
// tables of bench.md and chaos.md in docs/contributing. Only this package defines the bounds.
package figures

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	begin = "<!-- figures: %s (made by %s; do not edit) -->\n"
	end   = "<!-- end -->\n"
	// width is where text breaks; tables do not.
	width = 100
)

// Put puts a set's tables between their marks on a page.
func (s *Set) Put(page []byte) ([]byte, error) {
	mark := fmt.Appendf(nil, begin, s.Name, s.part.Command)
	before, rest, _ := bytes.Cut(page, mark)
	old, after, ok := bytes.Cut(rest, []byte(end))
	if !ok || bytes.Contains(old, []byte("<!-- ")) || bytes.Contains(after, mark) {
		return nil, fmt.Errorf("docs/%s has not once, with %s after it: %s", s.part.Page, end, mark)
	}
	return bytes.Join([][]byte{before, mark, []byte(s.block()), []byte(end), after}, nil), nil
}

// block returns a set as Markdown.
func (s *Set) block() string {
	var b strings.Builder
	b.WriteString("\n")
	for _, line := range s.origin() {
		b.WriteString(folded(line))
	}
	b.WriteString("\n| figure | measured | bound | |\n|---|---|---|---|\n")
	for _, d := range s.part.Definitions {
		if f := s.figure(d.ID); f == nil {
			b.WriteString(line(d.Title, "not noted", d.Bound.text(d.Unit), ""))
		} else { // with the title from the time of the run: the definition may have changed since
			b.WriteString(line(f.Title, f.text(), f.Bound.text(f.Unit), f.verdict("**broken**")))
		}
	}
	for _, t := range s.Tables {
		b.WriteString("\n" + line(t.Columns...) + "|" + strings.Repeat("---|", len(t.Columns)) + "\n")
		for _, r := range t.Rows {
			b.WriteString(line(r...))
		}
	}
	return b.String() + "\n"
}

// line returns a line of a table.
func line(cells ...string) string {
	text := "| " + strings.Join(cells, " | ") + " |\n"
	for strings.Contains(text, "|  |") {
		text = strings.ReplaceAll(text, "|  |", "| |")
	}
	return text
}

// origin describes what was measured, when and on what machine, and how many bounds hold.
func (s *Set) origin() (lines []string) {
	bounds, hold := 0, 0
	for i := range s.Figures {
		if s.Figures[i].Bound != nil {
			bounds++
		}
		if s.Figures[i].verdict("") != "" {
			hold++
		}
	}
	commit := fmt.Sprintf("commit: `%s`", s.Commit)
	if s.Commit == "" {
		commit = fmt.Sprintf("commit: the run did not note it; `%s` recorded these figures", s.Recorded)
	} else if s.Changed {
		commit += ", with changes that were not committed"
	}
	date, _, _ := strings.Cut("date: "+s.Date, "T")
	if s.Seconds > 0 {
		date += ", for " + (time.Duration(s.Seconds) * time.Second).String()
	}
	lines = []string{commit, date, "machine: " + s.Machine.String()}
	var sizes []string
	for _, name := range slices.Sorted(maps.Keys(s.Sizes)) {
		sizes = append(sizes, name+" "+s.Sizes[name])
	}
	if len(sizes) > 0 {
		lines = append(lines, "sizes: "+strings.Join(sizes, ", "))
	}
	file := "bench/" + s.part.Name + ".json"
	up := strings.Repeat("../", strings.Count(s.part.Page, "/"))
	return append(lines, fmt.Sprintf("bounds that hold: %d of %d", hold, bounds), fmt.Sprintf("made from [%s](%s%s)", file, up, file))
}

// folded returns an item of a list, broken where it is too long.
func folded(item string) (out string) {
	line := "-"
	for _, word := range strings.Fields(item) {
		if len(line)+1+len(word) > width {
			out += line + "\n"
			line = " "
		}
		line += " " + word
	}
	return out + line + "\n"
}

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
