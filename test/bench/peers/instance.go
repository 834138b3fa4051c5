package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/load"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/proc"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/way"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

const (
	// upTimeout is how long a way may take until it carries a request.
	upTimeout = 30 * time.Second
	// askEvery is the interval of attempts.
	askEvery = 20 * time.Millisecond
	askFor   = time.Second
	warmUp   = 100 * time.Millisecond
)

// instance is a running way: its relay, its agent, and perhaps a delay line.
type instance struct {
	*run.Run
	way                 way.Way
	at                  way.Place
	relay, agent, delay *harness.Program // no relay for direct
}

// contender is a way with a protocol, and a client that uses it.
type contender struct {
	row
	*instance
	client *http.Client
}

var instances int

// startInstance starts the processes of a way, with a delay line before the agent if oneWay is not
// 0. local is the App that it leads to, if any.
func startInstance(r *run.Run, w way.Way, dir, local string, oneWay time.Duration) *instance {
	instances++
	address := func(port int) string { return fmt.Sprintf("%s:%d", way.Address(instances), 4000+port) }
	at := way.Place{
		Dir: dir, Public: address(0), Tunnel: address(1), Via: address(1), Local: address(2),
		RelaySpare: [2]string{address(3), address(4)}, AgentSpare: [2]string{address(5), address(6)},
	}
	if local != "" {
		at.Local = local
	}
	if w.Relay == nil {
		at.Public = at.Tunnel
	}
	i := &instance{Run: r, way: w, at: at}
	if oneWay > 0 {
		i.delay = i.start(roleDelay, address(7), at.Tunnel, oneWay.String())
		i.at.Via = address(7)
		if w.Relay == nil {
			i.at.Public = address(7)
		}
	}
	place := string(run.Must(json.Marshal(i.at)))
	if w.Relay != nil {
		i.relay = i.start(roleRelay, w.Name, place)
	}
	i.agent = i.start(roleAgent, w.Name, place)
	return i
}

func (i *instance) start(role string, args ...string) *harness.Program {
	p := proc.Start(i.at.Dir, i.way.Name+"-"+role, append([]string{roleCommand, role}, args...)...)
	i.OnClose(p.Kill)
	return p
}

func (i *instance) stop() {
	for _, p := range []*harness.Program{i.agent, i.delay, i.relay} {
		if p != nil {
			run.Check(p.Kill())
		}
	}
}

// await waits until a request is answered. Each attempt uses a new connection.
func (i *instance) await(ctx context.Context, client *http.Client, url string, within time.Duration) {
	i.Await(ctx, within, askEvery, func() {
		ctx, cancel := context.WithTimeout(ctx, askFor)
		defer cancel()
		defer client.CloseIdleConnections()
		for _, p := range []*harness.Program{i.agent, i.relay} {
			if p != nil && !p.Running() {
				run.Failf("%s has a side that ended; its last lines:\n%s", i.way.Name, p.LastLines(8))
			}
		}
		load.Get(ctx, client, url+load.PathSmall)
	})
}

// awaitRunner waits until a Runner's request is answered.
func (i *instance) awaitRunner(ctx context.Context, within time.Duration) {
	i.await(ctx, way.Runner(i.at.Dir, i.at.Public, way.HTTP1), way.BaseURL, within)
}

// sides returns the way's processes, and this one, which is the load.
func (i *instance) sides() map[string]int {
	sides := map[string]int{roleAgent: i.agent.PID(), "load": os.Getpid()}
	if i.relay != nil {
		sides[roleRelay] = i.relay.PID()
	}
	return sides
}

// cpu returns the CPU time of each side until now, in µs. What else runs on the machine changes it
// by far less than it does rates and times.
func (i *instance) cpu() map[string]float64 {
	used := map[string]float64{}
	for side, pid := range i.sides() {
		used[side] = run.Milliseconds(proc.UseOf(pid).CPU) * 1e3
	}
	return used
}

// row names a contender.
type row struct {
	Way      string       `json:"way"`
	Protocol way.Protocol `json:"protocol"`
}
