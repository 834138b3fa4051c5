package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"
)

// together is how many `go test` commands run at a time. Each tests several packages at a time.
const together = 2

// strictly makes an unexpected skip fail the run. CI sets it, and .ci/run itself does.
const strictly = "CI"

// isStrict reports whether a skip that is not expected is a failure. The suites that a developer
// asks for by hand only show it.
func isStrict(suite string) bool {
	return os.Getenv(strictly) != "" && suite != "short" && suite != "package"
}

// runJobs runs `go test` commands side by side and reports on all of them as one.
func runJobs(ctx context.Context, out io.Writer, suite string, jobs []job) error {
	all := pointers(jobs)
	return follow(out, suite, all, func(_ *report, events chan<- event) error { return streamAll(ctx, all, together, events) })
}

// follow reports on the events that run sends until it returns.
func follow(out io.Writer, suite string, jobs []*job, run func(*report, chan<- event) error) error {
	known, err := loadKnowledge()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(jobs, func(j *job) bool { return j.isShort() }) {
		if known.shortReasons, err = shortReasons("."); err != nil {
			return fmt.Errorf("find what -short leaves out: %w", err)
		}
	}
	fmt.Fprintf(out, "== %s\n", suite)
	r := newReport(out, known)
	r.jobs = jobs
	r.budgeted = suite == "test" // the others leave tests out, or run them in other ways
	r.strict = isStrict(suite)
	events := make(chan event)
	var failed error
	go func() {
		defer close(events)
		failed = run(r, events)
	}()
	r.follow(events)
	// A failing test makes its command fail, too: the report's error is more specific.
	if err := r.summary(); err != nil {
		return err
	}
	return failed
}

// streamAll runs the jobs, atOnce at a time, and returns when all have ended.
func streamAll(ctx context.Context, jobs []*job, atOnce int, events chan<- event) error {
	var (
		all    sync.WaitGroup
		mu     sync.Mutex
		failed []error
		slots  = make(chan struct{}, atOnce)
	)
	for _, j := range jobs {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		all.Go(func() {
			defer func() { <-slots }()
			if err := stream(ctx, j, events); err != nil {
				mu.Lock()
				failed = append(failed, fmt.Errorf("%s: %w", j.name, err))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return errors.Join(append(failed, context.Cause(ctx))...)
}

func pointers(jobs []job) (all []*job) {
	for i := range jobs {
		all = append(all, &jobs[i])
	}
	return all
}

func round(d time.Duration) time.Duration { return d.Round(time.Second) }
