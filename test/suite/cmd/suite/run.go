package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
)

// runner runs jobs by gotestsum, which prints the report and repeats what failed.
type runner struct {
	out     io.Writer
	modfile string    // of gotestsum (https://github.com/gotestyourself/gotestsum)
	dir     string    // where the reports are, among them one for JUnit's readers
	flaky   flakyList // of this machine
	strict  bool      // an unexpected skip fails the run, as in CI
}

// run runs jobs, and says what gotestsum does not. Up to five failed tests are repeated, each
// twice: if more fail, the cause is not chance.
func (r runner) run(ctx context.Context, jobs []job) error {
	plan, events := filepath.Join(r.dir, "jobs.json"), filepath.Join(r.dir, "events.json")
	self, err := os.Executable()
	text, cannot := json.Marshal(jobs)
	if err := errors.Join(err, cannot, os.RemoveAll(r.dir), os.MkdirAll(r.dir, 0o755), os.WriteFile(plan, text, 0o600)); err != nil {
		return err
	}
	r.flaky.print(r.out)
	failed := r.gotestsum(ctx, "--format=pkgname-and-test-fails", "--format-hide-empty-pkg", "--hide-summary=skipped",
		"--rerun-fails=2", "--rerun-fails-max-failures=5", "--rerun-fails-run-root-test", "--rerun-fails-abort-on-data-race",
		"--jsonfile="+events, "--junitfile="+filepath.Join(r.dir, "junit.xml"),
		"--ignore-non-json-output-lines", "--raw-command", "--", self, "execute", plan)
	seen, err := readResults(events)
	if err != nil {
		return err
	}
	fmt.Fprintln(r.out, "\nslowest tests:")
	_ = r.gotestsum(ctx, "tool", "slowest", "--num=15", "--jsonfile="+events) // a report, no verdict
	isShort := slices.Contains(jobs[0].Args, "-short")                        // it leaves tests out by design
	unexpected := seen.printSkips(r.out, isShort)
	err = r.flaky.record(r.out, seen)
	switch {
	case failed != nil:
		for _, t := range seen.failedThen("fail") {
			fmt.Fprintf(r.out, "to run it again: %s\n", t.again())
		}
		return errors.Join(fmt.Errorf("tests failed: %w", failed), err)
	case err == nil && unexpected > 0 && r.strict:
		return fmt.Errorf("%d tests were skipped for reasons that are not in skips.txt", unexpected)
	}
	return err
}

func (r runner) gotestsum(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"tool", "-modfile=" + r.modfile, "gotestsum"}, args...)...)
	cmd.Stdout, cmd.Stderr = r.out, r.out
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = stopTimeout
	return cmd.Run()
}
