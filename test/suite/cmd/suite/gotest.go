package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

const (
	// stopTimeout is for the tests' clean-up after Ctrl-C.
	stopTimeout = 2 * time.Minute
	maxLine     = 16 << 20
	// packageTimeout ends a package whose tests hang.
	packageTimeout = "40m"
)

// job is one `go test` command.
type job struct {
	name     string
	part     string // of the release suite; empty for others
	nice     int    // how far it stands back where others want the processor, as nice(1) has it
	dir      string // of a module of its own; empty for the repository's
	race     bool
	args     []string
	env      []string
	packages []string
	last     []string // what comes after the packages
}

// flags returns those that come before the packages. Vetting is the linters' work.
func (j job) flags() []string {
	flags := []string{"-trimpath", "-timeout", packageTimeout, "-vet=off"}
	if j.race {
		flags = append(flags, suite.RaceFlags...)
	}
	return append(flags, j.args...)
}

func (j job) verbose() bool { return slices.Contains(j.args, "-v") }

// selects reports whether a pattern decides which tests run. When it matches none, the job has
// shown nothing.
func (j job) selects() bool {
	return slices.ContainsFunc(j.args, func(arg string) bool { return arg == "-run" || arg == "-fuzz" })
}

func (j job) isShort() bool { return slices.Contains(j.args, "-short") }

func (j job) environ() []string {
	cgo := "CGO_ENABLED=0"
	if j.race {
		cgo = "CGO_ENABLED=1" // the race detector needs it
	}
	// The race detector has each process wait a second at its end, for stragglers.
	return append(append(os.Environ(), cgo, "GORACE=atexit_sleep_ms=50"), j.env...)
}

// again returns a command line that runs a package's tests, or one test, as the job does.
func (j job) again(pkg, test string) string {
	words := slices.Clone(j.env)
	if j.race {
		words = append(words, "CGO_ENABLED=1")
	}
	words = append(append(words, "go", "test"), j.flags()...)
	if test != "" {
		elements := strings.Split(test, "/")
		for i := range elements {
			elements[i] = "^" + elements[i] + "$"
		}
		words = append(words, "-run", "'"+strings.Join(elements, "/")+"'")
	}
	command := strings.Join(append(words, "-count=1", pkg), " ")
	if j.dir != "" {
		command = "(cd " + j.dir + " && " + command + ")"
	}
	return command
}

// event is one line of `go test -json`; see `go doc test2json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of a build
	Test        string
	Elapsed     float64
	Output      string
	FailedBuild string

	job *job
	// call is no line: it is called where the report is, between lines.
	call func()
}

// stream runs a job and sends its events. It returns when the command has ended.
func stream(ctx context.Context, j *job, events chan<- event) error {
	words := slices.Concat([]string{"go", "test", "-json"}, j.flags(), j.packages, j.last)
	if j.nice > 0 {
		words = append([]string{"nice", "-n", strconv.Itoa(j.nice)}, words...)
	}
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	// As a terminal does it: go cleans up after an interrupt only, and passes none on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = stopTimeout
	cmd.Dir, cmd.Env = j.dir, j.environ()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	var both sync.WaitGroup
	both.Go(func() { decode(stdout, j, events) })
	both.Go(func() { decode(stderr, j, events) })
	both.Wait()
	return cmd.Wait()
}

// decode passes on lines that are no JSON as output: go's own messages.
func decode(in io.Reader, j *job, events chan<- event) {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, maxLine)
	for scanner.Scan() {
		e := event{job: j}
		if json.Unmarshal(scanner.Bytes(), &e) != nil {
			e = event{Action: "output", Output: scanner.Text() + "\n", job: j}
		}
		events <- e
	}
	if err := scanner.Err(); err != nil && !errors.Is(err, os.ErrClosed) {
		events <- event{Action: "output", Output: "suite: " + err.Error() + "\n", job: j}
		_, _ = io.Copy(io.Discard, in)
	}
}
