// Command cluster runs real Kubernetes clusters for tests and demos; see
// test/cluster/README.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	// A command that was run for the user has already reported its error.
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(max(exit.ExitCode(), 1))
	}
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(1)
}
