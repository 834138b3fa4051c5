// Command report runs `go test` with the arguments it is given and tells of it as
// it goes: a line for each package when it ends, in whichever order, one now and
// then for what takes long, and at the end what failed, why, and how to run just
// that again. Plain `go test` is silent for minutes when a package at the head of
// its list is slow.
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
	"os/signal"
	"syscall"
	"time"
)

const (
	heartbeat = 15 * time.Second
	// stopTimeout is for the tests' clean-up after Ctrl-C.
	stopTimeout = 2 * time.Minute
	maxLine     = 16 << 20
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, args []string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	// As a terminal does it: go cleans up after an interrupt only, and passes none on.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = stopTimeout
	cmd.Stderr = out
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	events := make(chan event)
	go func() {
		defer close(events)
		decode(stdout, events)
	}()
	r := newReport(out, args)
	r.follow(events)
	err = cmd.Wait()
	if failed := r.summary(); failed != nil {
		return failed
	}
	return err
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
}

// decode passes lines on that are no JSON as output: go's own messages.
func decode(in io.Reader, events chan<- event) {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(nil, maxLine)
	for scanner.Scan() {
		var e event
		if json.Unmarshal(scanner.Bytes(), &e) != nil {
			e = event{Action: "output", Output: scanner.Text() + "\n"}
		}
		events <- e
	}
	if err := scanner.Err(); err != nil && !errors.Is(err, os.ErrClosed) {
		events <- event{Action: "output", Output: "report: " + err.Error() + "\n"}
		_, _ = io.Copy(io.Discard, in)
	}
}
