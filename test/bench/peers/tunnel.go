package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/bench/figures"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/way"
)

// tunnelSettings are the sizes of the tunnel's part.
type tunnelSettings struct {
	Rounds     int
	Measure    time.Duration
	BulkRounds int
	Bulk       time.Duration
	RoundTrip  time.Duration
	Reconnect  time.Duration
	Only       string
	Steps      string
	Clients    int
	Protocol   string
}

// contender is a way with a protocol, and a Runner's client that uses it.
type contender struct {
	name     string
	protocol way.Protocol
	at       *instance
	client   *http.Client
}

type tunnelBench struct {
	tunnelSettings
	*progress
	dir        string
	instances  []*instance
	contenders []*contender
	results    tunnelResults
}

func runTunnel(ctx context.Context, args []string) (err error) {
	b := &tunnelBench{progress: &progress{out: os.Stdout, start: time.Now()}}
	flags := flag.NewFlagSet("tunnel", flag.ContinueOnError)
	short := flags.Bool("short", false, "one short round of each: for working on what is measured")
	var output figures.Output
	output.Flags(flags)
	// Many short turns and not few long ones: a virtual machine changes its speed for seconds at a
	// time, and compared values must be from the same moment.
	flags.IntVar(&b.Rounds, "rounds", 40, "rounds of requests, in which the ways take turns; peers are in every third")
	flags.DurationVar(&b.Measure, "measure", 250*time.Millisecond, "how long each way is measured in a round, at each number of clients")
	flags.IntVar(&b.BulkRounds, "bulk-rounds", 15, "rounds of bulk, of the same kind")
	flags.DurationVar(&b.Bulk, "bulk", 300*time.Millisecond, "how long a bulk transfer goes on, about")
	flags.DurationVar(&b.RoundTrip, "round-trip", 40*time.Millisecond, "the long way's round trip")
	flags.DurationVar(&b.Reconnect, "reconnect", 60*time.Second, "how long a way may take until it is back")
	flags.StringVar(&b.Only, "only", "", "measure these ways alone, with commas between; direct is always there")
	flags.StringVar(&b.Steps, "steps", "", "measure this alone, with commas between: requests, memory, bulk, beside, reconnect, far")
	flags.IntVar(&b.Clients, "clients", 0, "measure requests of so many clients alone: 1, 50 or 200")
	flags.StringVar(&b.Protocol, "protocol", "", "measure this protocol alone: http/1.1 or h2")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *short {
		b.Rounds, b.Measure, b.BulkRounds, b.Bulk, b.Reconnect = 1, 400*time.Millisecond, 1, 200*time.Millisecond, 15*time.Second
	}
	run, err := figures.Begin(ctx, figures.Tunnel, output, *short)
	if err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "pipeops-bench-tunnel-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.perform(ctx, *short); err != nil {
		return err
	}
	b.results.figures(run.Set)
	if b.Steps != "" || b.Clients > 0 || b.Protocol != "" {
		run.Figures = slices.DeleteFunc(run.Figures, func(f figures.Figure) bool { return math.IsNaN(f.Measured) })
	}
	fmt.Printf("\nthe tunnel beside its peers; took %s\n\n", time.Since(b.progress.start).Round(time.Second))
	b.results.print(os.Stdout)
	broken := run.Report(os.Stdout)
	if output.Dir != "" {
		err = errors.Join(run.Publish(flags, b.results.rows()), b.results.plot(output.Dir))
	}
	return errors.Join(err, broken)
}

func (b *tunnelBench) perform(ctx context.Context, short bool) error {
	for _, step := range []struct {
		name, title string
		do          func(context.Context) error
	}{
		{"", "start all ways, each side in a process of its own", b.begin},
		{"requests", fmt.Sprintf("requests of 1, 50 and 200 clients, %d rounds in turns", b.Rounds), b.measureRequests},
		{"memory", "memory of both sides, after that", b.measureMemory},
		{"bulk", fmt.Sprintf("bulk down and up, %d rounds", b.BulkRounds), b.measureBulk},
		{"beside", fmt.Sprintf("50 clients beside a download, stalled and at full speed, %d rounds", b.Rounds), b.measureDisturbed},
		{"reconnect", "killed relays, until the next request is answered", b.measureReconnect},
		{"far", fmt.Sprintf("the same at a round trip of %s", b.RoundTrip), func(ctx context.Context) error { return b.measureFar(ctx, short) }},
	} {
		if step.name != "" && b.Steps != "" && !slices.Contains(strings.Split(b.Steps, ","), step.name) {
			continue
		}
		if err := b.step(step.title, func() error { return step.do(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

// wanted returns the ways to measure.
func (b *tunnelBench) wanted() []way.Way {
	if b.Only == "" {
		return way.All()
	}
	names := append(strings.Split(b.Only, ","), way.Direct)
	return slices.DeleteFunc(way.All(), func(w way.Way) bool { return !slices.Contains(names, w.Name) })
}

// begin starts all ways. They stay up together: unused ones take almost no CPU.
func (b *tunnelBench) begin(ctx context.Context) error {
	if err := way.NewCertificates(b.dir); err != nil {
		return err
	}
	for _, w := range b.wanted() {
		i, err := startInstance(w, b.dir, 0)
		if err != nil {
			return err
		}
		b.instances = append(b.instances, i)
	}
	for _, i := range b.instances {
		if err := i.await(ctx, upTimeout); err != nil {
			return err
		}
		b.say("%-13s %s", i.way.Name, i.way.Note)
		contenders, err := b.contendersOf(i)
		if err != nil {
			return err
		}
		b.contenders = append(b.contenders, contenders...)
	}
	return nil
}

// contendersOf adds HTTP/2 on the ways that bounds compare.
func (b *tunnelBench) contendersOf(i *instance) ([]*contender, error) {
	protocols := []way.Protocol{way.HTTP1}
	if i.way.Name == way.Ours || i.way.Name == way.Direct {
		protocols = append(protocols, way.HTTP2)
	}
	if b.Protocol != "" {
		protocols = slices.DeleteFunc(protocols, func(p way.Protocol) bool { return string(p) != b.Protocol })
	}
	var all []*contender
	for _, p := range protocols {
		client, err := way.Runner(i.at.Dir, i.at.Public, p)
		if err != nil {
			return nil, err
		}
		all = append(all, &contender{name: i.way.Name, protocol: p, at: i, client: client})
	}
	return all, nil
}

// close ends everything and leaves nothing.
func (b *tunnelBench) close() error {
	for _, i := range b.instances {
		i.stop()
	}
	return os.RemoveAll(b.dir)
}
