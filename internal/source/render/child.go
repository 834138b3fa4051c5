package render

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Argument is the first argument of a program that is to be a child: see Child.
const Argument = "render-source"

// Limits of a child.
const (
	// Memory is what its heap may take, in bytes: one arena of Go's. The agent's pod has
	// room for that beside the agent.
	Memory = 64 << 20
	// Patience is how long it may take.
	Patience = 30 * time.Second
	// maxAnswer is more than the largest Result in its encoding.
	maxAnswer = 2 * MaxOutput
)

// Child renders one job from standard input and ends the process, when the process was
// started for that. Programs that are Run's command call it before anything else.
func Child() {
	if len(os.Args) != 2 || os.Args[1] != Argument {
		return
	}
	os.Exit(child(os.Stdin, os.Stdout, os.Stderr))
}

func child(in io.Reader, out, errs io.Writer) int {
	if err := confine(); err != nil {
		fmt.Fprintln(errs, err)
		return 1
	}
	var j Job
	if err := gob.NewDecoder(in).Decode(&j); err != nil {
		fmt.Fprintln(errs, "read the job:", err)
		return 1
	}
	if err := gob.NewEncoder(out).Encode(do(j)); err != nil {
		fmt.Fprintln(errs, "write the result:", err)
		return 1
	}
	return 0
}

// Command is this very program, as a child.
func Command() ([]string, error) {
	self, err := os.Executable()
	return []string{self, Argument}, err
}

// Run has a child carry the job out. An error that the files are to blame for is a
// *problem.Error.
func Run(ctx context.Context, command []string, j Job) (Result, error) {
	var job bytes.Buffer
	if err := gob.NewEncoder(&job).Encode(j); err != nil {
		return Result{}, fmt.Errorf("write the job: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = []string{fmt.Sprintf("GOMEMLIMIT=%d", Memory*3/4), "GOMAXPROCS=1", "HOME=/nonexistent"}
	cmd.Stdin, cmd.WaitDelay = &job, time.Second
	out := &bounded{left: maxAnswer}
	errs := &bounded{left: maxMessage, drop: true}
	cmd.Stdout, cmd.Stderr = out, errs
	err := cmd.Run()
	switch {
	case err == nil:
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return Result{}, tooMuch("takes more than %s", Patience)
	case ctx.Err() != nil:
		return Result{}, ctx.Err()
	case out.left < 0:
		return Result{}, tooMuch("makes more than %d bytes", MaxOutput)
	case outOfMemory(err, errs.String()):
		return Result{}, tooMuch("takes more than %d MiB of memory", Memory>>20)
	default:
		return Result{}, fmt.Errorf("render in a process of its own: %w: %s", err, errs.String())
	}
	var r Result
	if err := gob.NewDecoder(out).Decode(&r); err != nil {
		return Result{}, fmt.Errorf("read what was rendered: %w", err)
	}
	return r, r.Err()
}

func tooMuch(format string, args ...any) error {
	return problem.Errorf(problem.TooLarge, "look for a loop in the templates that does not end, or split the source", "rendering "+format, args...)
}

// bounded keeps what a child writes, up to a limit.
type bounded struct {
	bytes.Buffer
	left int
	drop bool // what is more, instead of failing
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left >= 0 {
		return b.Buffer.Write(p)
	}
	if b.drop {
		return len(p), nil
	}
	return 0, errors.New("more than the limit")
}
