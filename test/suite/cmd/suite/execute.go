package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// stopTimeout is for the tests' clean-up after Ctrl-C.
	stopTimeout = 2 * time.Minute
	// exitFinal makes gotestsum end without repeating the tests that failed.
	exitFinal = 3
)

// event is what is used of a line of `go test -json`; see `go doc test2json`.
type event struct{ Action, Package, Test, Output string }

// executor is what gotestsum runs in place of `go test`: it runs jobs, and prints the events of all
// of them as those of one command.
type executor struct {
	out   io.Writer
	quiet bool // gotestsum refuses lines that are not events while it repeats a test

	mu     sync.Mutex
	failed map[string]bool // packages
	final  []string        // reasons not to repeat what failed
}

// execute runs the jobs in a file, or, with a test's pattern and its package's label, that test of
// them alone. It returns the exit code.
func execute(ctx context.Context, out io.Writer, args []string) (int, error) {
	text, err := os.ReadFile(args[0])
	var jobs []job
	if err := errors.Join(err, json.Unmarshal(text, &jobs)); err != nil {
		return exitFinal, err
	}
	x := &executor{out: out, quiet: len(args) == 3, failed: map[string]bool{}}
	if x.quiet {
		jobs = only(jobs, args[1], args[2])
	}
	for stage := range 3 {
		lanes := map[string][]job{}
		for _, j := range jobs {
			if j.Stage == stage {
				lanes[j.Lane] = append(lanes[j.Lane], j)
			}
		}
		var side sync.WaitGroup
		for _, lane := range lanes {
			side.Go(func() { x.run(ctx, lane) })
		}
		side.Wait()
	}
	for _, reason := range x.final {
		x.pass(event{}, "not repeated: "+reason)
	}
	if len(x.final) > 0 || len(jobs) == 0 {
		return exitFinal, nil
	}
	return min(len(x.failed), 1), nil
}

// run runs jobs one after another.
func (x *executor) run(ctx context.Context, lane []job) {
	for _, j := range lane {
		if err := x.test(ctx, j); err != nil {
			x.mu.Lock()
			x.final = append(x.final, fmt.Sprintf("go test %v of %d packages: %v", j.First, len(j.Packages), err))
			x.mu.Unlock()
		}
	}
}

// test runs a job. Failed tests are not error: their events say so.
func (x *executor) test(ctx context.Context, j job) error {
	words := j.words()
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	// As a terminal does it: go cleans up after an interrupt only, and passes none on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay, cmd.Stderr = stopTimeout, os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err := errors.Join(err, cmd.Start()); err != nil {
		return err
	}
	ran, failed := false, false
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		line, e := lines.Text(), event{}
		if json.Unmarshal(lines.Bytes(), &e) == nil && j.Part != "" { // the parts test some packages twice
			label := j.label(e.Package)
			line, e.Package = strings.Replace(line, strconv.Quote(e.Package), strconv.Quote(label), 1), label
		}
		ran = ran || e.Action == "run"
		failed = failed || e.Action == "fail" && e.Test == ""
		x.pass(e, line)
	}
	_, _ = io.Copy(io.Discard, stdout) // what is left after an error
	err = cmd.Wait()
	switch {
	case lines.Err() != nil || failed:
		return lines.Err()
	case err == nil && j.selects() && !ran:
		return errors.New("the pattern matches no test")
	}
	return err
}

// pass prints a line, perhaps an event, and keeps count.
func (x *executor) pass(e event, line string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e.Action == "output" && strings.Contains(e.Output, "found unexpected goroutines") { // goleak
		x.final = append(x.final, short(e.Package)+" "+e.Test+": goroutines leaked")
	}
	if e.Action == "fail" {
		if e.Test == "" && !x.failed[e.Package] { // a package fails after its tests
			x.final = append(x.final, short(e.Package)+" failed outside of its tests")
		}
		x.failed[e.Package] = true
	}
	if e.Action != "" || !x.quiet {
		fmt.Fprintln(x.out, line)
	}
}
