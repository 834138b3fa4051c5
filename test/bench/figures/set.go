// Package figures compares the measurements of the benchmark and the chaos program with the
// product's bounds, which only bounds.yaml defines. It writes them as JSON in docs/bench, and as
// the tables of bench.md and chaos.md in docs/contributing.
package figures

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// ErrBroken means that a bound does not hold; the table has shown which.
var ErrBroken = errors.New("a bound is broken")

// Definition is a figure that a part measures, with the most or the least that it may be. Where its
// title compares, both sides are measured in the same run, in turns.
type Definition struct {
	ID          string   `json:"id"`
	Title       string   `json:"title"`
	Unit        string   `json:"unit"`
	Most, Least *float64 // nil without a bound
}

//go:embed bounds.yaml
var boundsFile []byte

// Parts returns the definitions of all parts, in the order of their tables.
func Parts() map[string][]Definition {
	var parts map[string][]Definition
	if err := yaml.UnmarshalStrict(boundsFile, &parts); err != nil {
		panic(err)
	}
	return parts
}

// Page is the page of docs with a part's table.
func Page(part string) string {
	if part == "chaos" {
		return "contributing/chaos.md"
	}
	return "contributing/bench.md"
}

// Set holds the figures of one run of a part.
type Set struct {
	Name string `json:"part"`
	// Commit is what was measured.
	Commit string `json:"commit"`
	// Date is when the run began, in RFC 3339 format; only the day if no more is known.
	Date    string `json:"date"`
	Seconds int    `json:"seconds,omitempty"`
	Machine string `json:"machine"`
	// Short reports that the figures must not be quoted.
	Short bool `json:"short,omitempty"`
	// Sizes are the flags of the run.
	Sizes   map[string]string  `json:"sizes,omitempty"`
	Figures map[string]float64 `json:"figures"`
	Tables  []Table            `json:"tables,omitempty"`

	definitions []Definition
}

// Table is shown below the figures.
type Table struct {
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

// New returns a set without figures.
func New(part string) *Set {
	return &Set{Name: part, Figures: map[string]float64{}, definitions: Parts()[part]}
}

// Add adds a figure of the part. An undefined figure is a programming error. JSON has no NaN: a
// division by zero means that nothing was measured.
func (s *Set) Add(id string, measured float64) {
	if !slices.ContainsFunc(s.definitions, func(d Definition) bool { return d.ID == id }) {
		panic(fmt.Sprintf("part %s of the benchmark has no figure %q", s.Name, id))
	}
	if !math.IsNaN(measured) && !math.IsInf(measured, 0) {
		s.Figures[id] = measured
	}
}

// Report prints the table. It returns ErrBroken if a bound is.
func (s *Set) Report(out io.Writer) error {
	table, broken := s.table()
	fmt.Fprintf(out, "%s\ndocs/%s defines each of them.\n", table, Page(s.Name))
	if broken > 0 {
		return ErrBroken
	}
	return nil
}

// table returns the figures as Markdown, and how many bounds are broken.
func (s *Set) table() (table string, broken int) {
	table = "| figure | measured | bound | |\n|---|---|---|---|\n"
	for _, d := range s.definitions {
		measured, ok := s.Figures[d.ID]
		text, verdict := "not measured", ""
		if ok {
			text = d.text(measured)
		}
		switch {
		case !ok || d.Most == nil && d.Least == nil:
		case d.holds(measured):
			verdict = "holds"
		default:
			verdict, broken = "**broken**", broken+1
		}
		table += line(d.Title, text, d.bound(), verdict)
	}
	return table, broken
}

// Check returns what keeps a set from being shown on its page.
func (s *Set) Check() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf(s.Name+".json: "+format, args...))
	}
	if s.Commit == "" || s.Date == "" || s.Machine == "" {
		wrong("commit, date or machine is missing")
	}
	if s.Short {
		wrong("the figures of a short run are not to be quoted")
	}
	for _, d := range s.definitions {
		if _, ok := s.Figures[d.ID]; !ok && d.bound() != "" {
			wrong("figure %s has a bound and was not measured", d.ID)
		}
	}
	return errors.Join(errs...)
}

// Save writes everything into a directory.
func (s *Set) Save(dir string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, s.Name+".json"), append(text, '\n'), 0o644) // readable for all users
}

// Read reads a part's newest run from a directory.
func Read(part, dir string) (*Set, error) {
	s := New(part)
	text, err := os.ReadFile(filepath.Join(dir, part+".json"))
	if err != nil {
		return nil, err
	}
	return s, json.Unmarshal(text, s)
}

// Put puts a set's tables between their marks on a page.
func (s *Set) Put(page []byte) ([]byte, error) {
	command := strings.Replace("make bench-"+s.Name, "bench-chaos", "chaos", 1)
	begin, end := fmt.Sprintf("<!-- figures: %s (made by %s; do not edit) -->\n", s.Name, command), []byte("<!-- end -->\n")
	before, rest, _ := bytes.Cut(page, []byte(begin))
	_, after, ok := bytes.Cut(rest, end)
	if !ok {
		return nil, fmt.Errorf("docs/%s does not have, with %s after it: %s", Page(s.Name), end, begin)
	}
	return slices.Concat(before, []byte(begin+s.block()), end, after), nil
}

// block returns a set as Markdown.
func (s *Set) block() string {
	table, broken := s.table()
	bounds := 0
	for _, d := range s.definitions {
		if _, ok := s.Figures[d.ID]; ok && d.bound() != "" {
			bounds++
		}
	}
	date, _, _ := strings.Cut(s.Date, "T")
	if s.Seconds > 0 {
		date += ", for " + (time.Duration(s.Seconds) * time.Second).String()
	}
	text := fmt.Sprintf("\n- commit: %s\n- date: %s\n- machine: %s\n", s.Commit, date, s.Machine)
	var sizes []string
	for names := range slices.Chunk(slices.Sorted(maps.Keys(s.Sizes)), 5) {
		for i, name := range names {
			names[i] = name + " " + s.Sizes[name]
		}
		sizes = append(sizes, strings.Join(names, ", "))
	}
	text += "- sizes: " + strings.Join(sizes, ",\n  ") + "\n" + fmt.Sprintf("- bounds that hold: %d of %d\n- made from [bench/%s.json](../bench/%[3]s.json)\n\n%s", bounds-broken, bounds, s.Name, table)
	for _, t := range s.Tables {
		text += "\n" + line(t.Columns...) + "|" + strings.Repeat("---|", len(t.Columns)) + "\n"
		for _, r := range t.Rows {
			text += line(r...)
		}
	}
	return text + "\n"
}

// line returns a line of a table.
func line(cells ...string) string {
	text := "| " + strings.Join(cells, " | ") + " |\n"
	for strings.Contains(text, "|  |") {
		text = strings.ReplaceAll(text, "|  |", "| |")
	}
	return text
}

// holds reports whether a figure keeps its bound. What is not a number does not.
func (d *Definition) holds(measured float64) bool {
	return (d.Most == nil || measured <= *d.Most) && (d.Least == nil || measured >= *d.Least)
}

// bound returns the bound for the reader, or nothing.
func (d *Definition) bound() string {
	switch {
	case d.Most != nil:
		return "≤ " + number(*d.Most, -1, d.Unit)
	case d.Least != nil:
		return "≥ " + number(*d.Least, -1, d.Unit)
	}
	return ""
}

// text returns a figure in about three digits. It has more where rounding would move it over its
// bound.
func (d *Definition) text(measured float64) string {
	digits := 0
	if n := math.Abs(measured); n < 100 && n != math.Trunc(n) {
		tens := int(math.Floor(math.Log10(n)))
		digits = 2 - tens + min(0, max(tens, -1))
	}
	for ; digits < 18; digits++ {
		rounded, err := strconv.ParseFloat(strconv.FormatFloat(measured, 'f', digits, 64), 64)
		if err != nil || d.holds(rounded) == d.holds(measured) {
			break
		}
	}
	return number(measured, digits, d.Unit)
}

// number puts spaces between groups of three digits before the point, and the unit behind.
func number(n float64, digits int, unit string) string {
	whole, rest, point := strings.Cut(strconv.FormatFloat(n, 'f', digits, 64), ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + " " + whole[i:]
	}
	if point {
		whole += "." + rest
	}
	if unit != "" && !strings.HasPrefix(unit, "/") {
		whole += " "
	}
	return whole + unit
}
