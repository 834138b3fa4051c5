// Package run runs a part of the benchmark, which has to say only what it measures. Its sizes are
// flags, its steps are printed, and its figures become a table, JSON and a page. The statistics of
// all parts are here, too.
package run

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pipeops/pipeops-vm-agent/test/bench/figures"
)

// Benchmark measures a part. It is a pointer to a struct, whose fields with these tags are its
// sizes: flag is the name, usual the default, short that of -short if it differs, and help the
// text.
type Benchmark interface {
	Measure(ctx context.Context, r *Run)
}

// Run is a part in progress.
type Run struct {
	*figures.Run

	start   time.Time
	steps   int
	closers []func() error
}

const (
	// tellEvery is how often a long step reports its progress.
	tellEvery    = 10 * time.Second
	closeTimeout = 2 * time.Minute
	// workers is how many things Each does at a time.
	workers = 8
)

// Main measures the part that the first argument names, and ends the program if that fails.
func Main(parts map[string]Benchmark) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := fmt.Errorf("name one of the parts %v first; -help after it lists its sizes", slices.Sorted(maps.Keys(parts)))
	if len(os.Args) > 1 && parts[os.Args[1]] != nil {
		err = measure(ctx, os.Args[1], parts[os.Args[1]])
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: failed:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, part string, b Benchmark) (err error) {
	flags := flag.NewFlagSet(part, flag.ExitOnError)
	var output figures.Output
	output.Flags(flags)
	short := flags.Bool("short", false, "smaller and shorter, for working on what is measured")
	if err := parse(flags, b, short); err != nil {
		return err
	}
	r := &Run{start: time.Now()}
	if r.Run, err = figures.Begin(ctx, part, output, *short); err != nil {
		return err
	}
	defer func() {
		for _, c := range slices.Backward(r.closers) {
			err = errors.Join(err, c())
		}
	}()
	failed := Try(func() { b.Measure(ctx, r) })
	fmt.Printf("\n%s; took %s\n\n", part, time.Since(r.start).Round(time.Second))
	broken := r.Report(os.Stdout)
	if failed != nil { // the figures so far were shown
		return errors.Join(failed, broken)
	}
	return errors.Join(broken, r.Publish(flags))
}

// parse sets the sizes of a benchmark from its tags and the command line.
func parse(flags *flag.FlagSet, b Benchmark, isShort *bool) error {
	of, short := reflect.ValueOf(b).Elem(), map[string]string{}
	for i := range of.NumField() {
		tag := of.Type().Field(i).Tag
		name, help := tag.Get("flag"), tag.Get("help")
		if name == "" {
			continue
		}
		switch p := of.Field(i).Addr().Interface().(type) {
		case *int:
			flags.IntVar(p, name, 0, help)
		case *string:
			flags.StringVar(p, name, "", help)
		case *time.Duration:
			flags.DurationVar(p, name, 0, help)
		}
		short[name] = tag.Get("short")
		if err := flags.Set(name, tag.Get("usual")); err != nil {
			return fmt.Errorf("-%s: %w", name, err)
		}
		flags.Lookup(name).DefValue = flags.Lookup(name).Value.String()
	}
	err := flags.Parse(os.Args[2:])
	flags.VisitAll(func(f *flag.Flag) {
		if given := f.Value.String() != f.DefValue; *isShort && !given && short[f.Name] != "" {
			err = errors.Join(err, f.Value.Set(short[f.Name]))
		}
	})
	return err
}

// OnClose has a function called after everything, the last one first.
func (r *Run) OnClose(f func() error) { r.closers = append(r.closers, f) }

// OnCloseWithin is OnClose for a function that does not hang on what is broken.
func (r *Run) OnCloseWithin(f func(context.Context) error) {
	r.OnClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		return f(ctx)
	})
}

// Say prints a line about the current step.
func (r *Run) Say(format string, args ...any) { fmt.Printf("   "+format+"\n", args...) }

// Step does one step of the run.
func (r *Run) Step(title string, do func()) {
	r.steps++
	fmt.Printf("== %d. %s  (at %s)\n", r.steps, title, time.Since(r.start).Round(time.Second))
	if err := Try(do); err != nil {
		Check(fmt.Errorf("%s: %w", title, err))
	}
}

// InRounds calls a function with the numbers below n. A function that compares things in each round
// changes their order from round to round (Turns), so that none is always the first.
func (r *Run) InRounds(n int, do func(round int)) {
	for round := range n {
		do(round)
		r.Say("round %d of %d", round+1, n)
	}
}

// Turns returns all in the order of a round: each comes first equally often.
func Turns[T any](all []T, round int) []T {
	first := round % len(all)
	return slices.Concat(all[first:], all[:first])
}

// Each calls a function with the numbers below n, several at a time, and reports its progress.
func (r *Run) Each(ctx context.Context, n int, what string, do func(context.Context, int)) {
	var done atomic.Int64
	defer r.Every(tellEvery, func() { r.Say("%d of %d %s", done.Load(), n, what) })()
	Parallel(ctx, n, workers, func(ctx context.Context, i int) {
		do(ctx, i)
		done.Add(1)
	})
}

// Parallel calls a function with the numbers below n, at most limit at a time; all at once with -1.
func Parallel(ctx context.Context, n, limit int, do func(context.Context, int)) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(limit)
	for i := range n {
		group.Go(func() error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return Try(func() { do(ctx, i) })
		})
	}
	Check(group.Wait())
}

// Every calls a function at intervals until stop is called, which waits for the last call.
func (r *Run) Every(interval time.Duration, do func()) (stop func()) {
	end := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				do()
			case <-end:
				return
			}
		}
	})
	return func() { close(end); work.Wait() }
}

// Await calls check at intervals until it does not fail any more. It reports the failure from time
// to time, and fails with it when there is no more time.
func (r *Run) Await(ctx context.Context, within, interval time.Duration, check func()) {
	late, told := time.Now().Add(within), time.Now()
	for {
		err := Try(check)
		switch {
		case err == nil:
			return
		case time.Now().After(late):
			Failf("still after %s: %w", within, err)
		case time.Since(told) > tellEvery:
			r.Say("%v", err)
			told = time.Now()
		}
		Rest(ctx, interval)
	}
}

// Rest lets time pass.
func Rest(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
		Check(ctx.Err())
	}
}
