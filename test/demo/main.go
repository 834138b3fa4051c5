// Command demo shows the whole product on real parts: a Kubernetes, a RabbitMQ, the control plane,
// the agent as a pod, and a Runner that deploys through the tunnel. `make demo` runs it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// exitInterrupted is what shells expect of a program that Ctrl-C ended.
const exitInterrupted = 130

func main() { os.Exit(perform()) }

func perform() int {
	defer ownTerminal()()
	ctx, stop := untilToldToEnd()
	defer stop()
	err := run(ctx, keep())
	switch {
	case errors.Is(err, errInterrupted):
		fmt.Fprintln(os.Stderr, "demo:", err)
		return exitInterrupted
	case err != nil:
		fmt.Fprintln(os.Stderr, "demo: failed:", err)
		return 1
	}
	fmt.Println("demo: ok")
	return 0
}

// untilToldToEnd returns a context that ends with Ctrl-C, a SIGTERM, or the terminal's end. None of
// them may end the process itself, which must clean up.
func untilToldToEnd() (context.Context, context.CancelFunc) {
	// Without this a reader that went away, as in `make demo | head`, would.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup
		signals = append(signals, syscall.SIGHUP)
	}
	return signal.NotifyContext(context.Background(), signals...)
}

// keep reports whether the demo stays up at its end: from a terminal, unless DEMO_KEEP=0; without
// one only with DEMO_KEEP=1.
func keep() bool {
	switch os.Getenv("DEMO_KEEP") {
	case "0":
		return false
	case "1":
		return true
	}
	return isTerminal(os.Stdin) && isTerminal(os.Stdout)
}
