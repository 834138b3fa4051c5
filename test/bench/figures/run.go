package figures

import (
	"context"
	"errors"
	"flag"
	"fmt"
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
	flags.StringVar(&o.Dir, "out", o.Dir, "directory that takes the figures as JSON")
	flags.StringVar(&o.Page, "page", o.Page, "Markdown page whose table the figures become")
}

// notSizes are flags that are not sizes.
var notSizes = []string{"out", "page", "short"}

// Run is a set whose run is in progress.
type Run struct {
	*Set
	Output     Output
	Kubernetes string // its version, if there is one
	start      time.Time
}

// Begin begins a run. It records the commit now, because the repository may change during the run.
func Begin(ctx context.Context, part string, o Output, short bool) (*Run, error) {
	r := &Run{Set: New(part), Output: o, start: time.Now()}
	r.Date, r.Short = r.start.UTC().Format(time.RFC3339), short
	if o.Page != "" && (o.Dir == "" || short) {
		return nil, errors.New("-page needs -out, because the page is made from the JSON, and is not for a short run")
	}
	if o.Dir == "" {
		return r, nil
	}
	commit, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	// One part writes to docs while the next one is measured.
	changes, failed := exec.CommandContext(ctx, "git", "status", "--porcelain", "--", ":(top)", ":(top,exclude)docs").Output()
	r.Commit = "`" + strings.TrimSpace(string(commit)) + "`"
	if len(changes) > 0 {
		r.Commit += ", with changes that were not committed"
	}
	return r, errors.Join(err, failed)
}

// Publish writes the run to its output: JSON first, then the page. A run that did not measure
// everything that has a bound is only written as JSON.
func (r *Run) Publish(flags *flag.FlagSet) error {
	if r.Output.Dir == "" {
		return nil
	}
	r.Seconds, r.Sizes = int(time.Since(r.start).Seconds()), map[string]string{}
	flags.VisitAll(func(f *flag.Flag) {
		none := slices.Contains([]string{"", "0", "false"}, f.Value.String())
		if !none && !slices.Contains(notSizes, f.Name) {
			r.Sizes[f.Name] = f.Value.String()
		}
	})
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return fmt.Errorf("read the machine's memory: %w", err)
	}
	r.Machine = fmt.Sprintf("%d CPUs, %.1f GiB, %s/%s, %s", runtime.NumCPU(), float64(info.Totalram*uint64(info.Unit))/(1<<30), runtime.GOOS, runtime.GOARCH, runtime.Version())
	if r.Kubernetes != "" {
		r.Machine += ", Kubernetes " + r.Kubernetes
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
