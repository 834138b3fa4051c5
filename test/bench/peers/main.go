// Command peers is the part of the benchmark that needs more than the product: the tunnel beside
// its peers (`peers tunnel`), a control plane with thousands of simulated agents (`peers agents`),
// and the gateway (`peers gateway`). It is a module of its own, so that the product has none of the
// peers' dependencies. `make bench-tunnel`, `make bench-agents` and `make bench-gateway` run it;
// docs/contributing/bench.md explains the output.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: failed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("say which part: `peers tunnel`, `peers agents` or `peers gateway`; -help after it lists its sizes")
	}
	switch args[0] {
	case "tunnel":
		return runTunnel(ctx, args[1:])
	case "agents":
		return runAgents(ctx, args[1:])
	case "gateway":
		return runGateway(ctx, args[1:])
	case roleCommand:
		return runRole(ctx, args[1:])
	}
	return fmt.Errorf("%q is no part; there are `peers tunnel`, `peers agents` and `peers gateway`", args[0])
}
