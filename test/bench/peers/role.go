package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/crowd"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/load"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/proc"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/way"
)

// roleCommand has this program be another side of what it measures, in a process of its
// own: `peers role relay WAY PLACE`.
const roleCommand = "role"

// The roles.
const (
	roleRelay = "relay"
	roleAgent = "agent"
	roleDelay = "delay"
	roleCrowd = "crowd"
	roleApp   = "app"
	roleFlood = "flood"
)

func runRole(ctx context.Context, args []string) error {
	switch {
	case len(args) == 3 && (args[0] == roleRelay || args[0] == roleAgent):
		w, err := way.Named(args[1])
		if err != nil {
			return err
		}
		var at way.Place
		if err := json.Unmarshal([]byte(args[2]), &at); err != nil {
			return fmt.Errorf("the place: %w", err)
		}
		if args[0] == roleRelay {
			return w.Relay(ctx, at)
		}
		return w.Agent(ctx, at)
	case len(args) == 4 && args[0] == roleDelay:
		oneWay, err := time.ParseDuration(args[3])
		if err != nil {
			return err
		}
		ln, err := new(net.ListenConfig).Listen(ctx, "tcp", args[1])
		if err != nil {
			return err
		}
		return load.Delay{OneWay: oneWay, Target: args[2]}.Serve(ctx, ln)
	case len(args) == 2 && args[0] == roleApp:
		return way.App(ctx, args[1])
	case len(args) == 1 && args[0] == roleFlood:
		return proc.Serve(&Flood{clients: map[string]*http.Client{}})
	case len(args) == 1 && args[0] == roleCrowd:
		return proc.Serve(crowd.New())
	}
	return fmt.Errorf("no such role: %q", args)
}
