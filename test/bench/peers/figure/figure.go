// Package figure holds what a benchmark measured, against the bounds that the product
// promises: as a table for people and as JSON for whoever compares runs.
package figure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"
)

// Figure is one thing that was measured, and its bounds if it has any.
type Figure struct {
	ID    string  `json:"id"`
	Title string  `json:"title"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit,omitempty"`
	// AtMost and AtLeast are the bounds; nil where there is none.
	AtMost  *float64 `json:"atMost,omitempty"`
	AtLeast *float64 `json:"atLeast,omitempty"`
}

// Holds says whether the figure is within its bounds.
func (f Figure) Holds() bool {
	return (f.AtMost == nil || f.Value <= *f.AtMost) && (f.AtLeast == nil || f.Value >= *f.AtLeast)
}

func (f Figure) bound() string {
	switch {
	case f.AtMost != nil:
		return "≤ " + quantity(*f.AtMost, f.Unit)
	case f.AtLeast != nil:
		return "≥ " + quantity(*f.AtLeast, f.Unit)
	}
	return ""
}

// ErrBroken says that a bound does not hold; the table has said which.
var ErrBroken = errors.New("a bound is broken")

// Set is the figures of one part of the benchmark, in the order of its table.
type Set struct {
	Part    string    `json:"part"`
	Time    time.Time `json:"time"`
	Seconds int       `json:"seconds"`
	Machine Machine   `json:"machine"`
	// Short says that it was a short run, whose figures are not to be quoted.
	Short bool `json:"short"`
	// Settings are the sizes that the run was made with.
	Settings any      `json:"settings"`
	Figures  []Figure `json:"figures"`
	// Details are the part's own tables.
	Details any `json:"details,omitempty"`
}

// Add adds a figure without a bound.
func (s *Set) Add(id, title string, value float64, unit string) {
	s.Figures = append(s.Figures, Figure{ID: id, Title: title, Value: value, Unit: unit})
}

// AtMost adds a figure that must not exceed a bound.
func (s *Set) AtMost(bound float64, id, title string, value float64, unit string) {
	s.Figures = append(s.Figures, Figure{ID: id, Title: title, Value: value, Unit: unit, AtMost: &bound})
}

// AtLeast adds a figure that must reach a bound.
func (s *Set) AtLeast(bound float64, id, title string, value float64, unit string) {
	s.Figures = append(s.Figures, Figure{ID: id, Title: title, Value: value, Unit: unit, AtLeast: &bound})
}

// Report prints the table, then a line for each broken bound, and answers ErrBroken if
// there is one.
func (s *Set) Report(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "WHAT\tMEASURED\tBOUND\t")
	var broken []Figure
	for _, f := range s.Figures {
		verdict := ""
		switch {
		case !f.Holds():
			verdict = "BROKEN"
			broken = append(broken, f)
		case f.bound() != "":
			verdict = "holds"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", f.Title, quantity(f.Value, f.Unit), f.bound(), verdict)
	}
	_ = table.Flush() // there is nobody left to tell
	fmt.Fprintln(out)
	for _, f := range broken {
		fmt.Fprintf(out, "BROKEN: %s is %s, and must be %s\n", f.Title, quantity(f.Value, f.Unit), f.bound())
	}
	if len(broken) > 0 {
		return ErrBroken
	}
	return nil
}

func quantity(value float64, unit string) string {
	switch unit {
	case "":
		return fmt.Sprintf("%.2f", value)
	case "%":
		return fmt.Sprintf("%.4f %%", value)
	case "/s", "MB/s":
		return fmt.Sprintf("%.0f %s", value, unit)
	}
	return fmt.Sprintf("%.1f %s", value, unit)
}

// Save writes everything to a file.
func (s *Set) Save(file string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { // for everybody to read
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}
