package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/rpc"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/procfs"

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
		used[side] = run.Milliseconds(useOf(pid).CPU) * 1e3
	}
	return used
}

// row names a contender.
type row struct {
	Way      string       `json:"way"`
	Protocol way.Protocol `json:"protocol"`
}

// results holds all samples of ways, round by round.
type results struct {
	mu      sync.Mutex
	rows    []row
	samples map[row]map[string][]float64
}

// medians are those of a contender.
type medians struct {
	row
	Medians map[string]float64 `json:"medians"`
}

// add is safe for concurrent use: the ways return together.
func (r *results) add(of row, what string, value float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
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

// took records the CPU time that each of a number of requests or MiB took on all cores, of all
// sides together and of each.
func (r *results) took(c *contender, what string, before map[string]float64, number float64) {
	all := 0.0
	for side, now := range c.cpu() {
		each := (now - before[side]) / number
		all += each
		r.add(c.row, "cpu."+what+"."+side, each)
	}
	r.add(c.row, "cpu."+what, all)
}

// ratio returns the ratio of two contenders.
func (r *results) ratio(of, to row, what string) float64 {
	return run.Ratio(r.samples[of][what], r.samples[to][what])
}

// medians returns those of all contenders.
func (r *results) medians() (all []medians) {
	for _, of := range r.rows {
		m := medians{of, map[string]float64{}}
		for what, samples := range r.samples[of] {
			m.Medians[what] = math.Round(100*run.Median(samples)) / 100
		}
		all = append(all, m)
	}
	return all
}

// startProcess starts this program with those arguments. Its log is in the directory.
func startProcess(dir, name string, args ...string) *harness.Program {
	p := (&harness.System{Options: harness.Options{Dir: dir}}).NewProgram(name, run.Must(os.Executable()), args, nil)
	run.Check(p.Start())
	return p
}

// served is a process that calls serve.
type served struct {
	*harness.Program
	client *rpc.Client
}

// startServed is like startProcess for a process that calls serve with its last argument.
func startServed(ctx context.Context, r *run.Run, dir, name string, args ...string) *served {
	socket := filepath.Join(dir, name+".sock")
	s := &served{Program: startProcess(dir, name, append(args, socket)...)}
	r.OnClose(s.Kill)
	r.Await(ctx, upTimeout, askEvery, func() { s.client = run.Must(rpc.Dial("unix", socket)) })
	return s
}

// call calls a method of the receiver that the process serves.
func (s *served) call(ctx context.Context, method string, args, reply any) {
	select {
	case call := <-s.client.Go(method, args, reply, make(chan *rpc.Call, 1)).Done:
		run.Check(call.Error)
	case <-ctx.Done():
		run.Check(ctx.Err())
	}
}

// serve serves a receiver's methods (net/rpc) to the process's end.
func serve(ctx context.Context, socket string, receiver any) {
	run.Check(rpc.Register(receiver))
	rpc.Accept(run.Must(new(net.ListenConfig).Listen(ctx, "unix", socket)))
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
