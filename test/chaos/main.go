// Command chaos runs the whole product on its real parts while all of them fail at
// random: processes are killed and held, wires cut, silent, slow and lossy. Runners
// command Apps meanwhile. Whenever it has been let to become quiet again, an
// accountant compares every command with what the cluster holds and every change
// with what the Runner heard. `make chaos` runs it; docs/chaos.md says how to read
// what it prints.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// options say what a run is like.
type options struct {
	Seed     uint64
	Duration time.Duration
	Workers  int
	Agents   int
	Planes   int
	SQLite   bool
	Sabotage bool
}

// usual is what a run is that was not told otherwise.
var usual = options{Duration: time.Hour, Workers: 4, Agents: 2, Planes: 2}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: failed:", err)
		os.Exit(1)
	}
	fmt.Println("chaos: ok")
}

func command(ctx context.Context) error {
	o := usual
	flag.Uint64Var(&o.Seed, "seed", o.Seed, "what decides the faults and the commands; any when 0")
	flag.DurationVar(&o.Duration, "duration", o.Duration, "how long things fail, the time to become quiet aside")
	flag.IntVar(&o.Workers, "workers", o.Workers, "Runner's workers that command at the same time")
	flag.IntVar(&o.Agents, "agents", o.Agents, "replicas of the agent")
	flag.IntVar(&o.Planes, "planes", o.Planes, "control planes, each with frps in it; with SQLite there is one")
	flag.BoolVar(&o.SQLite, "sqlite", o.SQLite, "the control plane's registry in SQLite instead of PostgreSQL")
	flag.BoolVar(&o.Sabotage, "sabotage", o.Sabotage, "in the end change one object behind everybody's back, which the accountant has to find")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("what is %q? All settings are flags", flag.Arg(0))
	}
	return run(ctx, o)
}

// run does all of it.
func run(ctx context.Context, o options) (err error) {
	if o.Duration < time.Second || o.Workers < 1 || o.Agents < 1 || o.Planes < 1 {
		return errors.New("-duration has to be a second or more, -workers, -agents and -planes 1 or more")
	}
	if o.SQLite {
		o.Planes = 1
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64N(1_000_000_000) + 1
	}
	c, err := newChaos(o)
	if err != nil {
		return err
	}
	c.say("seed %d; logs in %s", o.Seed, c.dir)
	defer func() { err = c.end(err) }()
	return c.perform(ctx)
}

// perform brings everything up, has it fail round by round, and takes stock after
// each.
func (c *chaos) perform(ctx context.Context) error {
	if err := c.up(ctx); err != nil {
		return fmt.Errorf("bring up the system: %w", err)
	}
	c.say("warming up, without faults")
	if err := c.round(ctx, round{length: warmUp}); err != nil {
		return fmt.Errorf("without faults: %w", err)
	}
	for _, r := range rounds(c.Seed, c.Duration, c.parts()) {
		if err := c.round(ctx, r); err != nil {
			return fmt.Errorf("round %d: %w", r.number, err)
		}
	}
	if c.Sabotage {
		return c.sabotage(ctx)
	}
	return nil
}

// again is how to run the same again.
func (o options) again() string {
	line := fmt.Sprintf("make chaos SEED=%d DURATION=%s", o.Seed, o.Duration)
	var more string
	if o.SQLite {
		more += " -sqlite"
	}
	if o.Workers != usual.Workers {
		more += fmt.Sprintf(" -workers %d", o.Workers)
	}
	if o.Agents != usual.Agents {
		more += fmt.Sprintf(" -agents %d", o.Agents)
	}
	if o.Planes != usual.Planes && !o.SQLite {
		more += fmt.Sprintf(" -planes %d", o.Planes)
	}
	if more != "" {
		line += fmt.Sprintf(" CHAOS_FLAGS='%s'", more[1:])
	}
	return line
}
