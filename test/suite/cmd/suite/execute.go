package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// stopTimeout is for the tests' clean-up after Ctrl-C.
	stopTimeout = 2 * time.Minute
	// heartbeat is how often a run names the tests that take long.
	heartbeat = 15 * time.Second
	maxLine   = 16 << 20
	// exitFinal makes gotestsum end without repeating the tests that failed.
	exitFinal = 3
)

// leak is how goleak reports goroutines that a test left behind.
const leak = "found unexpected goroutines"

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Time        time.Time `json:",omitzero"`
	Action      string
	Package     string  `json:",omitempty"`
	ImportPath  string  `json:",omitempty"` // of a build
	Test        string  `json:",omitempty"`
	Elapsed     float64 `json:",omitempty"` // seconds
	Output      string  `json:",omitempty"`
	FailedBuild string  `json:",omitempty"`
}

// executor is what gotestsum runs in place of `go test`: it runs a plan, and prints the events of
// all jobs as those of one command.
type executor struct {
	out   io.Writer
	quiet bool // gotestsum refuses lines that are not events while it repeats a test

	mu      sync.Mutex
	running map[string]time.Time // tests
	ended   int                  // tests
	failed  map[string]bool      // packages, and tests as "package test"
	final   []string             // reasons not to repeat what failed
}

// execute runs the plan in a file, or, with a test's pattern and its package's label, that test of
// it alone. It returns the exit code.
func execute(ctx context.Context, out io.Writer, args []string) (int, error) {
	var p plan
	text, err := os.ReadFile(args[0])
	if err != nil {
		return exitFinal, err
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return exitFinal, err
	}
	x := &executor{out: out, running: map[string]time.Time{}, failed: map[string]bool{}}
	if len(args) == 3 {
		if p, err = p.only(args[1], args[2]); err != nil {
			return exitFinal, err
		}
		x.quiet = true
	}
	stop := x.beat()
	err = x.run(ctx, p)
	stop()
	for _, reason := range x.final {
		x.say("not repeated: %s", reason)
	}
	switch {
	case len(x.final) > 0:
		return exitFinal, nil
	case err != nil:
		return 1, err
	case len(x.failed) > 0:
		return 1, nil
	}
	return 0, nil
}

// only returns the plan that repeats one test.
func (p plan) only(run, label string) (plan, error) {
	for _, j := range p.jobs() {
		pkg := strings.TrimSuffix(label, " ["+j.Part+"]")
		if j.label(pkg) == label && j.has(pkg) {
			return beside(j.repeat(run, pkg)), nil
		}
	}
	return nil, fmt.Errorf("no job tests %s", label)
}

func (x *executor) run(ctx context.Context, p plan) error {
	var errs []error
	for _, stage := range p {
		var side sync.WaitGroup
		results := make([]error, len(stage))
		for i, l := range stage {
			side.Go(func() { results[i] = x.runLane(ctx, l) })
		}
		side.Wait()
		errs = append(errs, results...)
	}
	return errors.Join(append(errs, context.Cause(ctx))...)
}

func (x *executor) runLane(ctx context.Context, l lane) error {
	var (
		all     sync.WaitGroup
		slots   = make(chan struct{}, max(1, l.AtOnce))
		results = make([]error, len(l.Jobs))
	)
	for i, j := range l.Jobs {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		all.Go(func() {
			defer func() { <-slots }()
			results[i] = x.test(ctx, j)
		})
	}
	all.Wait()
	return errors.Join(results...)
}

// test runs a job. Failed tests are no error: their events say so.
func (x *executor) test(ctx context.Context, j job) error {
	words := j.words()
	if j.Nice > 0 {
		words = append([]string{"nice", "-n", strconv.Itoa(j.Nice)}, words...)
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	// As a terminal does it: go cleans up after an interrupt only, and passes none on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = stopTimeout
	cmd.Dir, cmd.Env, cmd.Stderr = j.Dir, j.environ(), os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ran, failed := x.follow(j, stdout)
	err = cmd.Wait()
	if err == nil && j.selects() && ran == 0 {
		x.giveUp(fmt.Sprintf("%s: the pattern matches no test: %s", j.Name, strings.Join(j.Args, " ")))
	}
	if err == nil || failed {
		return nil
	}
	return fmt.Errorf("%s: %w", j.Name, err)
}

// follow passes a job's events on. It returns how many tests ran, and whether a package failed.
func (x *executor) follow(j job, in io.Reader) (ran int, failed bool) {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, maxLine)
	for scanner.Scan() {
		var e event
		if json.Unmarshal(scanner.Bytes(), &e) != nil {
			x.say("%s", scanner.Text())
			continue
		}
		e.Package = j.label(e.Package)
		if e.Action == "run" {
			ran++
		}
		failed = failed || e.Action == "fail" && e.Test == ""
		x.pass(e)
	}
	if err := scanner.Err(); err != nil {
		x.giveUp(fmt.Sprintf("%s: read events: %v", j.Name, err))
		_, _ = io.Copy(io.Discard, in)
	}
	return ran, failed
}

// pass prints an event and keeps count.
func (x *executor) pass(e event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	name := e.Package + " " + e.Test
	switch e.Action {
	case "run", "cont":
		x.running[name] = time.Now()
	case "output":
		if strings.Contains(e.Output, leak) {
			x.final = append(x.final, strings.TrimSpace(name)+": goroutines leaked")
		}
	case "pause", "pass", "skip", "fail":
		maps.DeleteFunc(x.running, func(test string, _ time.Time) bool {
			return test == name || e.Test == "" && strings.HasPrefix(test, name) // a panic ends a test silently
		})
		x.end(e)
	}
	_ = json.NewEncoder(x.out).Encode(e)
}

// end counts a test or package that ended.
func (x *executor) end(e event) {
	switch {
	case e.Action == "pause":
	case e.Action == "fail":
		// The package fails after its tests.
		if e.Test == "" && !x.failed[e.Package] {
			x.final = append(x.final, e.Package+" failed outside of its tests")
		}
		x.failed[e.Package] = true
	case e.Test != "":
		x.ended++
	}
}

func (x *executor) giveUp(reason string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.final = append(x.final, reason)
}

// say prints a line for the reader.
func (x *executor) say(format string, args ...any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.quiet {
		fmt.Fprintf(x.out, format+"\n", args...)
	}
}

// beat names the tests that run for longest, until it is stopped.
func (x *executor) beat() (stop func()) {
	start, done := time.Now(), make(chan struct{})
	var beating sync.WaitGroup
	beating.Go(func() {
		tick := time.NewTicker(heartbeat)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				x.say("...  %s, %s", time.Since(start).Round(time.Second), x.longest())
			}
		}
	})
	return func() { close(done); beating.Wait() }
}

func (x *executor) longest() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	names := slices.SortedFunc(maps.Keys(x.running), func(a, b string) int { return x.running[a].Compare(x.running[b]) })
	if len(names) == 0 {
		return fmt.Sprintf("%d tests passed; compiling, linking or starting", x.ended)
	}
	for i, name := range names[:min(3, len(names))] {
		names[i] = fmt.Sprintf("%s %s", short(name), time.Since(x.running[name]).Round(time.Second))
	}
	return fmt.Sprintf("%d tests passed; running: %s", x.ended, strings.Join(names[:min(3, len(names))], ", "))
}
