package figures

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"time"
)

// Output is where the figures of a run are written, beside the terminal.
type Output struct{ Dir, Page string }

// Flags adds the flags that set the output.
func (o *Output) Flags(flags *flag.FlagSet) {
	flags.StringVar(&o.Dir, "out", o.Dir, "directory that takes the figures as JSON, and plots")
	flags.StringVar(&o.Page, "page", o.Page, "Markdown page whose table the figures become")
}

// notSizes are flags that are not sizes.
var notSizes = []string{"out", "page", "keep", "profile", "short"}

// Run is a set whose run is in progress.
type Run struct {
	*Set
	output Output
	start  time.Time
}

// Begin begins a run. It records the commit now, because the repository may change during the run.
func Begin(ctx context.Context, p *Part, o Output, short bool) (*Run, error) {
	r := &Run{Set: New(p), output: o, start: time.Now()}
	r.Date, r.Short = r.start.UTC().Format(time.RFC3339), short
	switch {
	case o.Page != "" && o.Dir == "":
		return nil, errors.New("-page needs -out: the page is made from the JSON")
	case o.Page != "" && short:
		return nil, errors.New("-page is not for a short run, whose figures are not to be quoted")
	}
	if o.Dir == "" {
		return r, nil
	}
	var err error
	r.Commit, r.Changed, err = thisCommit(ctx)
	return r, err
}

// Publish writes the run to its output: JSON first, then the page. A run that did not measure
// everything that has a bound is only written as JSON.
func (r *Run) Publish(flags *flag.FlagSet, details any) (err error) {
	if r.output.Dir == "" {
		return nil
	}
	// JSON has no NaN: a division by zero means that nothing was measured.
	r.Figures = slices.DeleteFunc(r.Figures, func(f Figure) bool {
		return math.IsNaN(f.Measured) || math.IsInf(f.Measured, 0)
	})
	r.Seconds = int(time.Since(r.start).Seconds())
	r.Sizes = sizes(flags)
	kubernetes := r.Machine.Kubernetes
	if r.Machine, err = thisMachine(); err != nil {
		return err
	}
	r.Machine.Kubernetes = kubernetes
	if details != nil {
		if r.Details, err = json.Marshal(details); err != nil {
			return err
		}
	}
	if err := r.Save(r.output.Dir); err != nil || r.output.Page == "" {
		return err
	}
	return r.publishPage()
}

func (r *Run) publishPage() error {
	if err := r.Check(); err != nil {
		return fmt.Errorf("these figures are not for %s: %w", r.output.Page, err)
	}
	page, err := os.ReadFile(r.output.Page)
	if err != nil {
		return err
	}
	if page, err = r.Put(page); err != nil {
		return err
	}
	return os.WriteFile(r.output.Page, page, 0o644) // readable for all users
}

// sizes returns the final values of all flags that are sizes. It leaves out none and no.
func sizes(flags *flag.FlagSet) map[string]string {
	all := map[string]string{}
	flags.VisitAll(func(f *flag.Flag) {
		none := slices.Contains([]string{"", "0", "false"}, f.Value.String())
		if !none && !slices.Contains(notSizes, f.Name) {
			all[f.Name] = f.Value.String()
		}
	})
	return all
}
