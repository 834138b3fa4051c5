package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/crowd"
	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// agents measures a control plane, which is a separate process, with thousands of simulated
// agents.
type agents struct {
	Agents  int           `flag:"agents" usual:"10000" short:"500" help:"simulated agents"`
	Settle  time.Duration `flag:"settle" usual:"45s" short:"5s" help:"wait after the storm, until heartbeats are as seldom as they get"`
	Idle    time.Duration `flag:"idle" usual:"1m0s" short:"8s" help:"how long idleness is measured"`
	Events  int           `flag:"events" usual:"20000" short:"4000" help:"announcements over the broker's outages"`
	Tellers int           `flag:"tellers" usual:"2000" short:"400" help:"agents whose Apps these announcements are about"`
	Looks   int           `flag:"looks" usual:"50" short:"5" help:"how often each page of the console is looked at"`
	// Go collects at least every two minutes, and returns memory after that.
	Closed time.Duration `flag:"closed" usual:"2m30s" short:"5s" help:"wait after the console's pages were closed, until memory is looked at"`

	*run.Run
	sys      *harness.System
	crowd    crowd.Crowd
	consumer *ledger
	empty    use // the control plane's, before the first agent
}

const (
	benchRunner = "bench"
	// loopback is an address of this machine that no other process uses.
	loopback       = "127.0.66.1"
	connectTimeout = 3 * time.Minute
	// lookEvery is how often the crowd is asked how its agents are.
	lookEvery = 250 * time.Millisecond
)

func (b *agents) Measure(ctx context.Context, r *run.Run) {
	b.Run = r
	b.Tellers = min(b.Tellers, b.Agents)
	b.Events = max(b.Events/b.Tellers, 1) * b.Tellers
	r.Step("RabbitMQ, the control plane on SQLite, a Runner that listens", func() { b.begin(ctx) })
	r.Step(fmt.Sprintf("%d simulated agents register", b.Agents), func() { b.enrol(ctx) })
	r.Step("all connect at once", func() { b.storm(ctx) })
	r.Step(fmt.Sprintf("memory and CPU while nothing happens, for %s after %s", b.Idle, b.Settle), func() { b.measureIdle(ctx) })
	r.Step("the console: pages, updates, many open pages", func() { b.measureConsole(ctx) })
	r.Step("the control plane is killed and comes back", func() { b.restart(ctx) })
	r.Step(fmt.Sprintf("%d announcements, after an outage of RabbitMQ", b.Events), func() { b.announce(ctx) })
}

func (b *agents) begin(ctx context.Context) {
	// The crowd comes from one address, as agents do behind a load balancer.
	args := []string{"--log-level", "warn", "--shared-address", "127.0.0.0/8"}
	b.sys = run.Must(harness.New(harness.Options{Name: "bench-agents", Out: os.Stdout, ListenIP: loopback, ControlPlaneArgs: args}))
	b.OnCloseWithin(b.sys.Close)
	b.sys.Binaries = run.Must(harness.Build(ctx))
	run.Check(b.sys.StartBroker(ctx))
	run.Check(b.sys.StartControlPlane(ctx))
	run.Must(b.sys.CreateRunner(ctx, benchRunner))
	b.consumer = b.listen(ctx)
	b.empty = b.used()
}

// used returns what the control plane has taken of the machine until now.
func (b *agents) used() use { return useOf(b.sys.ControlPlanePID()) }

// enrol starts the crowd and makes its agents register.
func (b *agents) enrol(ctx context.Context) {
	token := run.Must(b.sys.CreateToken(ctx, "--uses", "0"))
	start := time.Now()
	b.crowd = crowd.Enrol(ctx, b.sys.APIURL(), b.sys.DataDir()+"/ca.pem", token, b.Agents)
	b.Add("agents.enrolled", float64(b.Agents)/time.Since(start).Seconds())
}

// awaitBack waits until all agents have a tunnel and were heard since then. It returns how many
// seconds later that was.
func (b *agents) awaitBack(ctx context.Context, since time.Time) float64 {
	b.Await(ctx, connectTimeout, lookEvery, func() {
		if n, trouble := b.crowd.Back(since); n < b.Agents {
			run.Failf("%d of %d agents have a tunnel and a heartbeat answered; what failed: %s", n, b.Agents, trouble)
		}
	})
	return time.Since(since).Seconds()
}

func (b *agents) storm(ctx context.Context) {
	before, start := b.used(), time.Now()
	b.crowd.Connect()
	b.Add("agents.storm", b.awaitBack(ctx, start))
	b.Add("agents.storm.cpu", run.Milliseconds(b.used().CPU-before.CPU)/float64(b.Agents))
}

func (b *agents) restart(ctx context.Context) {
	start := time.Now()
	run.Check(b.sys.KillControlPlane())
	run.Check(b.sys.RestartControlPlane(ctx))
	b.Say("it serves again after %s", time.Since(start).Round(time.Millisecond))
	b.Add("agents.restart", b.awaitBack(ctx, start))
}

// measureIdle takes memory and CPU when nothing has happened for a while but heartbeats.
func (b *agents) measureIdle(ctx context.Context) {
	run.Rest(ctx, b.Settle)
	before, beats, start := b.used(), b.crowd.Beats(), time.Now()
	run.Rest(ctx, b.Idle)
	after, n := b.used(), float64(b.Agents)
	b.Add("agents.written", float64(after.Written-before.Written)/float64(b.crowd.Beats()-beats)/1e3)
	b.Add("agents.memory", float64(after.Resident-b.empty.Resident)/n/1e3)
	b.Add("agents.cpu", 100*(after.CPU-before.CPU).Seconds()/time.Since(start).Seconds()/n)
}
