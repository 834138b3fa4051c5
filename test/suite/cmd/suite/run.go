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
	"strconv"
	"syscall"
)

const (
	// repeats is how often a failed test is run again, by itself, when all others have ended.
	repeats = 2
	// mayRepeat is how many tests are repeated at most. If more fail, the cause is not chance.
	mayRepeat = 5
	// slowestShown is how many of the slowest tests the report names.
	slowestShown = "15"
	// strictly makes an unexpected skip fail the run. .ci/run sets it, as CI systems do.
	strictly = "CI"
)

// gotestsum is the pinned tool: test reports and repetitions (https://github.com/gotestyourself/gotestsum).
var gotestsum = []string{"go", "tool", "-modfile=internal/tools/gotestsum/go.mod", "gotestsum"}

// runner runs plans by gotestsum, which prints the report and repeats what failed.
type runner struct {
	out    io.Writer
	errOut io.Writer
	tool   []string // gotestsum's command
	dir    string   // where the reports of each run are
	flaky  flakyList
	strict bool // an unexpected skip fails the run
}

// run runs a plan. Its files, among them a report for JUnit's readers, are in bin/test/NAME.
func (r runner) run(ctx context.Context, name string, p plan) error {
	dir := filepath.Join(r.dir, name)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	file, events := filepath.Join(dir, "plan.json"), filepath.Join(dir, "events.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return err
	}
	r.flaky.print(r.out)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	failed := r.command(ctx, "--format=pkgname-and-test-fails", "--format-hide-empty-pkg", "--hide-summary=skipped",
		"--rerun-fails="+strconv.Itoa(repeats), "--rerun-fails-max-failures="+strconv.Itoa(mayRepeat),
		"--rerun-fails-run-root-test", "--rerun-fails-abort-on-data-race",
		"--jsonfile="+events, "--junitfile="+filepath.Join(dir, "junit.xml"),
		"--ignore-non-json-output-lines", "--raw-command", "--", self, "execute", file).Run()
	seen, err := readResults(events)
	if err != nil {
		return err
	}
	return r.judge(ctx, seen, p, events, failed)
}

// judge prints what gotestsum does not, and returns why the run failed.
func (r runner) judge(ctx context.Context, seen results, p plan, events string, failed error) error {
	fmt.Fprintln(r.out, "\nslowest tests:")
	_ = r.command(ctx, "tool", "slowest", "--num="+slowestShown, "--jsonfile="+events).Run() // a report, no verdict
	unexpected := printSkips(r.out, seen.skips, p)
	flaky := r.flaky.record(r.out, seen)
	if failed != nil {
		for _, t := range seen.failed() {
			fmt.Fprintf(r.out, "to run it again: %s\n", t.again())
		}
		return errors.Join(fmt.Errorf("tests failed: %w", failed), flaky)
	}
	if flaky != nil {
		return flaky
	}
	if unexpected > 0 && r.strict {
		return fmt.Errorf("%d tests were skipped for reasons that are not in skips.txt", unexpected)
	}
	return nil
}

func (r runner) command(ctx context.Context, args ...string) *exec.Cmd {
	words := slices.Concat(r.tool, args)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Stdout, cmd.Stderr = r.out, r.errOut
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = stopTimeout
	return cmd
}
