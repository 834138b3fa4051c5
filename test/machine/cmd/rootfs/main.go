// Command rootfs creates the root file systems of test machines, so that no test has to wait for
// them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/pipeops/pipeops-vm-agent/test/machine"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rootfs:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, suites []string) error {
	for _, suite := range suites {
		if _, err := machine.Rootfs(ctx, suite, os.Stdout); err != nil {
			return err
		}
	}
	return nil
}
