package figures

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

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
