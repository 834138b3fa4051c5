package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// ExitError is a program that ended with an exit code other than 0.
type ExitError struct {
	Command string
	Code    int
	Stderr  string
}

func (e *ExitError) Error() string {
	return fmt.Sprintf("%s: exit code %d\n%s", e.Command, e.Code, strings.TrimSpace(e.Stderr))
}

// run runs a program to its end and returns its standard output. When it fails the error is an
// *ExitError.
func run(ctx context.Context, env []string, path string, args ...string) (string, error) {
	return runWith(ctx, "", env, path, args...)
}

// runWith is like run with a standard input.
func runWith(ctx context.Context, input string, env []string, path string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdin = strings.NewReader(input)
	cmd.Env = append(os.Environ(), env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = &ExitError{
			Command: strings.Join(append([]string{filepath.Base(path)}, args...), " "),
			Code:    exit.ExitCode(), Stderr: stderr.String(),
		}
	}
	return string(out), err
}
