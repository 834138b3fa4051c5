package figures

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"text/tabwriter"
)

// ErrBroken means that a bound does not hold; the table has shown which.
var ErrBroken = errors.New("a bound is broken")

// Set holds the figures of one run of a part.
type Set struct {
	Name string `json:"part"`
	// Commit is what was measured; Changed reports that the tree had further changes. Recorded is
	// the commit that added the figures of a run that did not record its own.
	Commit   string `json:"commit,omitempty"`
	Changed  bool   `json:"changed,omitempty"`
	Recorded string `json:"recorded,omitempty"`
	// Date is when the run began, in RFC 3339 format; only the day if no more is known.
	Date    string  `json:"date"`
	Seconds int     `json:"seconds,omitempty"`
	Machine Machine `json:"machine"`
	// Short reports that the figures must not be quoted.
	Short bool `json:"short,omitempty"`
	// Sizes are the flags of the run.
	Sizes   map[string]string `json:"sizes,omitempty"`
	Figures []Figure          `json:"figures"`
	Tables  []Table           `json:"tables,omitempty"`
	// Details belong to the part.
	Details json.RawMessage `json:"details,omitempty"`

	part *Part
}

// Table is shown below the figures.
type Table struct {
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
}

// New returns a set without figures.
func New(p *Part) *Set { return &Set{Name: p.Name, part: p} }

// Add adds a figure of the part, with its bound. An undefined figure is a programming error.
func (s *Set) Add(id string, measured float64) {
	d := s.part.definition(id)
	if d == nil {
		panic(fmt.Sprintf("part %s of the benchmark has no figure %q", s.Name, id))
	}
	f := Figure{ID: id, Title: d.Title, Unit: d.Unit, Measured: measured}
	f.judge(d.Bound)
	s.Figures = append(s.Figures, f)
	index := func(id string) int {
		return slices.IndexFunc(s.part.Definitions, func(d Definition) bool { return d.ID == id })
	}
	slices.SortStableFunc(s.Figures, func(a, b Figure) int { return index(a.ID) - index(b.ID) })
}

// definition returns nil if there is none of that ID.
func (p *Part) definition(id string) *Definition {
	i := slices.IndexFunc(p.Definitions, func(d Definition) bool { return d.ID == id })
	if i < 0 {
		return nil
	}
	return &p.Definitions[i]
}

// figure returns nil for a figure that was not measured.
func (s *Set) figure(id string) *Figure {
	i := slices.IndexFunc(s.Figures, func(f Figure) bool { return f.ID == id })
	if i < 0 {
		return nil
	}
	return &s.Figures[i]
}

// Report prints the table, then a line for each broken bound. It returns ErrBroken if there is one.
func (s *Set) Report(out io.Writer) (err error) {
	table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "WHAT\tMEASURED\tBOUND\t")
	for _, f := range s.Figures {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", f.Title, f.text(), f.Bound.text(f.Unit), f.verdict("BROKEN"))
	}
	_ = table.Flush() // an error has no receiver
	fmt.Fprintf(out, "\ndocs/%s defines each of them.\n", s.part.Page)
	for _, f := range s.Figures {
		if f.verdict("BROKEN") == "BROKEN" {
			fmt.Fprintf(out, "BROKEN: %s is %s, and must be %s\n", f.Title, f.text(), f.Bound.text(f.Unit))
			err = ErrBroken
		}
	}
	return err
}

// Check returns everything that keeps a set from being shown on its page: information for the
// reader is missing, or a stored bound differs from the code's.
func (s *Set) Check() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf(s.part.Name+".json: "+format, args...))
	}
	if s.Commit == "" && s.Recorded == "" || s.Date == "" || s.Machine.CPUs == 0 {
		wrong("commit, date or machine is missing")
	}
	if s.Short {
		wrong("the figures of a short run are not to be quoted")
	}
	for _, f := range s.Figures {
		d, judged := s.part.definition(f.ID), f
		if d == nil {
			wrong("figure %s is not defined", f.ID)
		} else if judged.judge(d.Bound); !reflect.DeepEqual(judged, f) {
			wrong("figure %s has a bound or a holds that is not as computed", f.ID)
		}
	}
	for _, d := range s.part.Definitions {
		if d.Bound != nil && s.figure(d.ID) == nil {
			wrong("figure %s has a bound and was not measured", d.ID)
		}
	}
	return errors.Join(errs...)
}

// Judge gives stored figures the current bounds.
func (s *Set) Judge() {
	for i := range s.Figures {
		if d := s.part.definition(s.Figures[i].ID); d != nil {
			s.Figures[i].judge(d.Bound)
		}
	}
}

// Save writes everything into a directory.
func (s *Set) Save(dir string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, s.part.Name+".json"), append(text, '\n'), 0o644) // readable for all users
}

// Read reads a part's newest run from a directory.
func Read(p *Part, dir string) (*Set, error) {
	s := New(p)
	text, err := os.ReadFile(filepath.Join(dir, p.Name+".json"))
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err == nil && s.Name != p.Name {
		err = fmt.Errorf("%s.json is of part %q", p.Name, s.Name)
	}
	return s, err
}
