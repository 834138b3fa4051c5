package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/rpc"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pipeops/pipeops-vm-agent/test/bench/figures"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/proc"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// agentsSettings are the sizes of the agents' part.
type agentsSettings struct {
	Agents    int
	Processes int
	Settle    time.Duration
	Idle      time.Duration
	Events    int
	Tellers   int
	Kills     int
	Looks     int // at a page of the console
	Closed    time.Duration
}

const (
	benchRunner = "bench"
	// loopback is an address of this machine that no other process uses.
	loopback = "127.0.66.1"
	// perProcess is the maximum number of agents in a process.
	perProcess = 5000
	// descriptorsPerTwo is the control plane's descriptors for two agents: their tunnels and, for
	// agents with frequent heartbeats, a connection for these. otherDescriptors is for everything
	// else.
	descriptorsPerTwo, otherDescriptors = 3, 300
	closeTimeout                        = 2 * time.Minute
)

type agentsBench struct {
	agentsSettings
	*progress
	*figures.Run
	sys       *harness.System
	processes []*proc.Process
	crowds    []*rpc.Client
	consumer  *listener
	curves    agentsCurves
	empty     usage // the control plane's, before the first agent
	profile   string
}

// agentsCurves are the data of the plots.
type agentsCurves struct {
	Storm         []point `json:"storm"`
	Restart       []point `json:"restart"`
	Announcements []point `json:"announcements"`
}

// point is the number of agents after a number of seconds.
type point struct {
	Seconds float64 `json:"s"`
	Count   int     `json:"n"`
}

func runAgents(ctx context.Context, args []string) (err error) {
	b := &agentsBench{progress: &progress{out: os.Stdout, start: time.Now()}}
	flags := flag.NewFlagSet("agents", flag.ContinueOnError)
	short := flags.Bool("short", false, "500 agents and shorter waits: for working on what is measured")
	var output figures.Output
	output.Flags(flags)
	flags.StringVar(&b.profile, "profile", "", "directory that takes profiles of the control plane: where its CPU goes while agents connect, and its memory when they have")
	flags.IntVar(&b.Agents, "agents", 10000, "simulated agents; as many as there may be open files for, if that is less")
	flags.DurationVar(&b.Settle, "settle", 45*time.Second, "wait after the storm, until heartbeats are as seldom as they get")
	flags.DurationVar(&b.Idle, "idle", time.Minute, "how long idleness is measured")
	flags.IntVar(&b.Events, "events", 20000, "announcements over the broker's outages")
	flags.IntVar(&b.Kills, "kills", 3, "how often RabbitMQ is killed while it makes up for an outage")
	flags.IntVar(&b.Looks, "looks", 50, "how often each page of the console is looked at")
	flags.DurationVar(&b.Closed, "closed", closedFor, "wait after the console's pages were closed, until memory is looked at")
	flags.IntVar(&b.Tellers, "tellers", 2000, "agents whose Apps these announcements are about")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *short {
		b.Agents, b.Settle, b.Idle, b.Events, b.Tellers, b.Kills, b.Looks, b.Closed = 500, 5*time.Second, 8*time.Second, 4000, 400, 1, 5, 5*time.Second
	}
	if err := b.fit(); err != nil {
		return err
	}
	if b.Run, err = figures.Begin(ctx, figures.Agents, output, *short); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.perform(ctx); err != nil {
		return errors.Join(err, b.Report(os.Stdout)) // of the figures so far
	}
	fmt.Printf("\n%d simulated agents and one control plane; took %s\n\n", b.Agents, time.Since(b.start).Round(time.Second))
	broken := b.Report(os.Stdout)
	if output.Dir != "" {
		err = errors.Join(b.Publish(flags, b.curves), b.curves.plot(output.Dir, b.Agents))
	}
	return errors.Join(err, broken)
}

// fit limits the agents to the files that a process may open here.
func (b *agentsBench) fit() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if room := 2 * (int(limit.Max) - otherDescriptors) / descriptorsPerTwo; room < b.Agents { //nolint:gosec // it is no such number
		b.say("a process may have %d files open here: %d agents in place of %d (ulimit -Hn)", limit.Max, room, b.Agents)
		b.Agents = room
	}
	if b.Agents < 1 || b.Events < 1 || b.Tellers < 1 || b.Looks < 1 || b.Kills < 0 {
		return errors.New("-agents, -events, -looks and -tellers have to be 1 or more, and -kills not less than none")
	}
	b.Tellers = min(b.Tellers, b.Agents)
	b.Events = max(b.Events/b.Tellers, 1) * b.Tellers
	b.Processes = (b.Agents + perProcess - 1) / perProcess
	return nil
}

func (b *agentsBench) perform(ctx context.Context) error {
	for _, step := range []struct {
		title string
		do    func(context.Context) error
	}{
		{"RabbitMQ, the control plane on SQLite, a Runner that listens", b.begin},
		{fmt.Sprintf("%d simulated agents register", b.Agents), b.enrol},
		{"all connect at once", b.storm},
		{fmt.Sprintf("memory and CPU while nothing happens, for %s after %s", b.Idle, b.Settle), b.measureIdle},
		{fmt.Sprintf("the console: pages, updates, %d open pages", openPages), b.measureConsole},
		{"the control plane is killed and comes back", b.restart},
		{fmt.Sprintf("%d announcements, and RabbitMQ killed among them", b.Events), b.announce},
	} {
		if err := b.step(step.title, func() error { return step.do(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

func (b *agentsBench) begin(ctx context.Context) (err error) {
	b.sys, err = harness.New(harness.Options{
		Name: "bench-agents", Out: os.Stdout, ListenIP: loopback,
		// The crowd comes from one address, as agents do behind a load balancer.
		ControlPlaneArgs: append([]string{"--log-level", "warn", "--shared-address", "127.0.0.0/8"}, b.profileArgs()...),
	})
	if err != nil {
		return err
	}
	if b.sys.Binaries, err = harness.Build(ctx); err != nil {
		return err
	}
	if err := b.sys.StartBroker(ctx); err != nil {
		return err
	}
	if err := b.sys.StartControlPlane(ctx); err != nil {
		return err
	}
	if _, err := b.sys.CreateRunner(ctx, benchRunner); err != nil {
		return err
	}
	if b.consumer, err = listen(b.sys.Broker); err != nil {
		return err
	}
	if err := b.consumer.awaitReady(ctx); err != nil {
		return err
	}
	b.empty, err = b.look()
	return err
}

// enrol starts the crowds and makes their agents register.
func (b *agentsBench) enrol(ctx context.Context) error {
	token, err := b.sys.CreateToken(ctx, "--uses", "0")
	if err != nil {
		return err
	}
	start := time.Now()
	for i := range b.Processes {
		p, c, err := startCrowd(b.sys.Dir, i)
		if err != nil {
			return err
		}
		b.processes, b.crowds = append(b.processes, p), append(b.crowds, c)
	}
	if err := b.enrolAll(ctx, token); err != nil {
		return err
	}
	b.Add("agents.enrolled", float64(b.Agents)/time.Since(start).Seconds())
	return nil
}

func startCrowd(dir string, number int) (*proc.Process, *rpc.Client, error) {
	name := "crowd " + strconv.Itoa(number+1)
	return proc.StartServing(name, dir+"/crowd.log", roleCommand, roleCrowd)
}

// close stops everything. It does not hang on broken parts.
func (b *agentsBench) close() error {
	for i, p := range b.processes {
		p.Kill()
		_ = b.crowds[i].Close() // the process has gone
	}
	if b.consumer != nil {
		b.consumer.stop()
	}
	if b.sys == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return b.sys.Close(ctx)
}
