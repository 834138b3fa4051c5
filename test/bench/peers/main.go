// Command peers is the part of the benchmark that needs more than the product: the tunnel beside
// its peers (`peers tunnel`), a control plane with thousands of simulated agents (`peers agents`),
// and the gateway (`peers gateway`). It is a separate module, so that the product has none of the
// peers' dependencies. `make bench-tunnel`, `make bench-agents` and `make bench-gateway` run it;
// docs/contributing/bench.md explains the output.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/load"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/way"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
)

func main() {
	if len(os.Args) > 2 && os.Args[1] == roleCommand {
		if err := run.Try(func() { play(context.Background(), os.Args[2], os.Args[3:]) }); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	run.Main(map[string]run.Benchmark{"tunnel": &tunnel{}, "agents": &agents{}, "gateway": &gateway{}})
}

// roleCommand has this program be another side of what it measures, in a separate process that
// only a signal ends: `peers role relay WAY PLACE`.
const roleCommand = "role"

// The roles.
const (
	roleRelay = "relay"
	roleAgent = "agent"
	roleDelay = "delay"
	roleApp   = "app"
	roleFlood = "flood"
)

func play(ctx context.Context, role string, args []string) {
	switch role {
	case roleRelay, roleAgent:
		w := way.Named(args[0])
		var at way.Place
		run.Check(json.Unmarshal([]byte(args[1]), &at))
		if role == roleRelay {
			w.Relay(ctx, at)
		} else {
			w.Agent(ctx, at)
		}
	case roleDelay:
		ln := run.Must(new(net.ListenConfig).Listen(ctx, "tcp", args[0]))
		load.Delay(ctx, ln, args[1], run.Must(time.ParseDuration(args[2])))
	case roleApp:
		way.App(ctx, args[0])
	case roleFlood: // as long as the process
		load.RunClosed(ctx, way.Visitor(args[0], args[1], way.HTTP1), otherURL+load.PathSmall, visitors, 0, time.Hour)
	}
}
