package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/pipeops/pipeops-vm-agent/test/bench/figures"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/load"
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
		Runners: address(3),
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
	p := startProcess(i.at.Dir, i.way.Name+"-"+role, append([]string{roleCommand, role}, args...)...)
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
func (i *instance) await(ctx context.Context, client *http.Client, url string) {
	i.Await(ctx, upTimeout, askEvery, func() {
		ctx, cancel := context.WithTimeout(ctx, askFor)
		defer cancel()
		defer client.CloseIdleConnections()
		i.checkSides()
		load.Get(ctx, client, url+load.PathSmall)
	})
}

// awaitPackets waits until a datagram to a port comes back.
func (i *instance) awaitPackets(ctx context.Context) {
	i.Await(ctx, upTimeout, askEvery, func() {
		i.checkSides()
		if !load.Answers(ctx, i.at.Public) {
			run.Failf("%s returns no datagram", i.way.Name)
		}
	})
}

// checkSides fails if a side has ended.
func (i *instance) checkSides() {
	for _, p := range []*harness.Program{i.agent, i.relay} {
		if p != nil && !p.Running() {
			run.Failf("%s has a side that ended; its last lines:\n%s", i.way.Name, p.LastLines(8))
		}
	}
}

// row names a contender.
type row struct {
	Way      string
	Protocol way.Protocol
}

// results holds all samples of ways, round by round.
type results struct {
	rows    []row
	samples map[row]map[string][]float64
}

func (r *results) add(of row, what string, value float64) {
	if r.samples == nil {
		r.samples = map[row]map[string][]float64{}
	}
	if r.samples[of] == nil {
		r.samples[of] = map[string][]float64{}
		r.rows = append(r.rows, of)
	}
	r.samples[of][what] = append(r.samples[of][what], value)
}

func (r *results) closed(c *contender, clients int, got load.Closed) {
	r.add(c.row, fmt.Sprintf("rps.%d", clients), got.PerSecond)
	r.add(c.row, fmt.Sprintf("p50.%d", clients), got.P50)
	r.add(c.row, fmt.Sprintf("p99.%d", clients), got.P99)
}

// ratio returns the ratio of two contenders.
func (r *results) ratio(of, to row, what string) float64 {
	return run.Ratio(r.samples[of][what], r.samples[to][what])
}

// table returns the medians of all contenders.
func (r *results) table() figures.Table {
	t := figures.Table{Columns: []string{
		"way", "requests/s of 1 client", "of 50", "of 200", "p99 of 1 client, µs", "of 50", "bulk down, MB/s", "up", "far, down", "up",
	}}
	for _, of := range r.rows {
		cells := []string{fmt.Sprintf("%s, %s", of.Way, of.Protocol)}
		for _, what := range []string{"rps.1", "rps.50", "rps.200", "p99.1", "p99.50", "bulk.down", "bulk.up", "far.down", "far.up"} {
			cells = append(cells, strings.Trim(fmt.Sprintf("%.0f", run.Median(r.samples[of][what])), "NaN"))
		}
		t.Rows = append(t.Rows, cells)
	}
	return t
}

// startProcess starts this program with those arguments. Its log is in the directory.
func startProcess(dir, name string, args ...string) *harness.Program {
	p := (&harness.System{Options: harness.Options{Dir: dir}}).NewProgram(name, run.Must(os.Executable()), args, nil)
	run.Check(p.Start())
	return p
}

// use is what a process has used of the machine, and has of it.
type use struct {
	CPU      time.Duration // on all cores
	Resident int64
	Written  int64 // to disk
}

// useOf returns a process's use until now.
func useOf(pid int) use {
	p := run.Must(procfs.NewProc(pid))
	cpu := run.Must(p.Stat()).CPUTime() * float64(time.Second)
	return use{time.Duration(cpu), int64(run.Must(p.NewStatus()).VmRSS), int64(run.Must(p.IO()).WriteBytes)} //nolint:gosec // not that much
}
