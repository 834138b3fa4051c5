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
	slices.SortStableFunc(s.Figures, func(a, b Figure) int { return s.part.index(a.ID) - s.part.index(b.ID) })
}

func (p *Part) index(id string) int {
	return slices.IndexFunc(p.Definitions, func(d Definition) bool { return d.ID == id })
}

// figure returns nil for a figure that was not measured.
func (s *Set) figure(id string) *Figure {
	for i := range s.Figures {
		if s.Figures[i].ID == id {
			return &s.Figures[i]
		}
	}
	return nil
}

// Report prints the table, then a line for each broken bound. It returns ErrBroken if there is one.
func (s *Set) Report(out io.Writer) error {
	table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(table, "WHAT\tMEASURED\tBOUND\t")
	var broken []Figure
	for _, f := range s.Figures {
		verdict := f.verdict()
		if verdict == "broken" {
			verdict = "BROKEN"
			broken = append(broken, f)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", f.Title, f.text(), f.Bound.text(f.Unit), verdict)
	}
	_ = table.Flush() // an error has no receiver
	fmt.Fprintf(out, "\ndocs/%s defines each of them.\n", s.part.Page)
	for _, f := range broken {
		fmt.Fprintf(out, "BROKEN: %s is %s, and must be %s\n", f.Title, f.text(), f.Bound.text(f.Unit))
	}
	if len(broken) > 0 {
		return ErrBroken
	}
	return nil
}

// Check returns everything that keeps a set from being shown on its page: information for the
// reader is missing, or a stored bound differs from the code's.
func (s *Set) Check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s.Commit == "" && s.Recorded == "" || s.Date == "" || s.Machine.CPUs == 0 {
		wrong("%s: commit, date or machine is missing", s.part.file())
	}
	if s.Short {
		wrong("%s is of a short run, whose figures are not to be quoted", s.part.file())
	}
	for _, f := range s.Figures {
		d := s.part.definition(f.ID)
		if d == nil {
			wrong("%s: figure %s is not defined", s.part.file(), f.ID)
			continue
		}
		judged := f
		if judged.judge(d.Bound); !reflect.DeepEqual(judged, f) {
			wrong("%s: figure %s has a bound or a holds that is not as computed", s.part.file(), f.ID)
		}
	}
	for _, d := range s.part.Definitions {
		if d.Bound != nil && s.figure(d.ID) == nil {
			wrong("%s: figure %s has a bound and was not measured", s.part.file(), d.ID)
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
	if err := os.MkdirAll(dir, 0o755); err != nil { // readable for all users
		return err
	}
	return os.WriteFile(filepath.Join(dir, s.part.file()), append(text, '\n'), 0o644)
}

// Read reads a part's newest run from a directory.
func Read(p *Part, dir string) (*Set, error) {
	text, err := os.ReadFile(filepath.Join(dir, p.file()))
	if err != nil {
		return nil, err
	}
	s := New(p)
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("%s: %w", p.file(), err)
	}
	if s.Name != p.Name {
		return nil, fmt.Errorf("%s is of part %q", p.file(), s.Name)
	}
	return s, nil
}
