package figures

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
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
	i := s.part.index(id)
	if i < 0 {
		panic(fmt.Sprintf("part %s of the benchmark has no figure %q", s.Name, id))
	}
	d := s.part.Definitions[i]
	f := Figure{ID: id, Title: d.Title, Unit: d.Unit, Measured: measured}
	f.judge(d.Bound)
	s.Figures = append(s.Figures, f)
	slices.SortStableFunc(s.Figures, func(a, b Figure) int { return s.part.index(a.ID) - s.part.index(b.ID) })
}

// index returns where a figure is defined, or -1.
func (p *Part) index(id string) int {
	return slices.IndexFunc(p.Definitions, func(d Definition) bool { return d.ID == id })
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
		i, judged := s.part.index(f.ID), f
		if i < 0 {
			wrong("figure %s is not defined", f.ID)
		} else if judged.judge(s.part.Definitions[i].Bound); !reflect.DeepEqual(judged, f) {
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
		if at := s.part.index(s.Figures[i].ID); at >= 0 {
			s.Figures[i].judge(s.part.Definitions[at].Bound)
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

// Output is where the figures of a run are written, beside the terminal.
type Output struct{ Dir, Page string }

// Flags adds the flags that set the output.
func (o *Output) Flags(flags *flag.FlagSet) {
	flags.StringVar(&o.Dir, "out", o.Dir, "directory that takes the figures as JSON, and plots")
	flags.StringVar(&o.Page, "page", o.Page, "Markdown page whose table the figures become")
}

// notSizes are flags that are not sizes.
var notSizes = []string{"out", "page", "keep", "pprof", "short"}

// Run is a set whose run is in progress.
type Run struct {
	*Set
	Output Output
	start  time.Time
}

// Begin begins a run. It records the commit now, because the repository may change during the run.
func Begin(ctx context.Context, p *Part, o Output, short bool) (*Run, error) {
	r := &Run{Set: New(p), Output: o, start: time.Now()}
	r.Date, r.Short = r.start.UTC().Format(time.RFC3339), short
	if o.Page != "" && (o.Dir == "" || short) {
		return nil, errors.New("-page needs -out, because the page is made from the JSON, and is not for a short run")
	}
	if o.Dir == "" {
		return r, nil
	}
	commit, err := git(ctx, "rev-parse", "--short=12", "HEAD")
	if err != nil {
		return nil, err
	}
	// One part writes to docs while the next one is measured.
	changes, err := git(ctx, "status", "--porcelain", "--", ":(top)", ":(top,exclude)docs")
	r.Commit, r.Changed = commit, changes != ""
	return r, err
}

func git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Publish writes the run to its output: JSON first, then the page. A run that did not measure
// everything that has a bound is only written as JSON.
func (r *Run) Publish(flags *flag.FlagSet, details any) (err error) {
	if r.Output.Dir == "" {
		return nil
	}
	// JSON has no NaN: a division by zero means that nothing was measured.
	r.Figures = slices.DeleteFunc(r.Figures, func(f Figure) bool {
		return math.IsNaN(f.Measured) || math.IsInf(f.Measured, 0)
	})
	r.Seconds = int(time.Since(r.start).Seconds())
	r.Sizes = map[string]string{}
	flags.VisitAll(func(f *flag.Flag) {
		none := slices.Contains([]string{"", "0", "false"}, f.Value.String())
		if !none && !slices.Contains(notSizes, f.Name) {
			r.Sizes[f.Name] = f.Value.String()
		}
	})
	if err := r.Machine.look(); err != nil {
		return err
	}
	if details != nil {
		if r.Details, err = json.Marshal(details); err != nil {
			return err
		}
	}
	if err := r.Save(r.Output.Dir); err != nil || r.Output.Page == "" {
		return err
	}
	if err := r.Check(); err != nil {
		return fmt.Errorf("these figures are not for %s: %w", r.Output.Page, err)
	}
	page, err := os.ReadFile(r.Output.Page)
	if err != nil {
		return err
	}
	if page, err = r.Put(page); err != nil {
		return err
	}
	return os.WriteFile(r.Output.Page, page, 0o644) // readable for all users
}

// Machine describes the machine of the measurements. Unknown fields are empty.
type Machine struct {
	CPUs       int     `json:"cpus"`
	MemoryGiB  float64 `json:"memoryGiB,omitempty"`
	OS         string  `json:"os,omitempty"`
	Go         string  `json:"go,omitempty"`
	Kubernetes string  `json:"kubernetes,omitempty"`
}

// look fills in all but Kubernetes.
func (m *Machine) look() error {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return fmt.Errorf("read the machine's memory: %w", err)
	}
	m.CPUs, m.MemoryGiB = runtime.NumCPU(), float64(info.Totalram*uint64(info.Unit)>>20)/1024
	m.OS, m.Go = runtime.GOOS+"/"+runtime.GOARCH, runtime.Version()
	return nil
}

func (m *Machine) String() string {
	said := []string{fmt.Sprintf("%d CPUs", m.CPUs), "memory not noted", "system not noted", "Go not noted"}
	if m.MemoryGiB > 0 {
		said = []string{said[0], fmt.Sprintf("%.1f GiB", m.MemoryGiB), m.OS, m.Go}
	}
	if m.Kubernetes != "" {
		said = append(said, "Kubernetes "+m.Kubernetes)
	}
	return strings.Join(said, ", ")
}
