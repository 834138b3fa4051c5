// Command chaos runs the whole product on its real parts while all of them fail at random:
// processes are killed and held, wires are cut, silent, slow and lossy. Meanwhile Runners command
// Apps. Whenever everything has settled again, an accountant compares every command with what the
// cluster holds, and every change with what the Runner received. `make chaos` runs it;
// docs/contributing/chaos.md explains the output.
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

	"github.com/pipeops/pipeops-vm-agent/test/bench/figures"
)

// options describe what a run is like.
type options struct {
	Seed     uint64
	Duration time.Duration
	Workers  int
	Agents   int
	Planes   int
	SQLite   bool
	Output   figures.Output
}

// usual are the default options of a run.
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
	flags := o.flags()
	if err := flags.Parse(os.Args[1:]); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("what is %q? All settings are flags", flags.Arg(0))
	}
	return execute(ctx, o)
}

// flags returns those of the options, which keep the values that they have.
func (o *options) flags() *flag.FlagSet {
	flags := flag.NewFlagSet("chaos", flag.ContinueOnError)
	flags.Uint64Var(&o.Seed, "seed", o.Seed, "what decides the faults and the commands; any when 0")
	flags.DurationVar(&o.Duration, "duration", o.Duration, "how long things fail, the time to become quiet aside")
	flags.IntVar(&o.Workers, "workers", o.Workers, "Runner's workers that command at the same time")
	flags.IntVar(&o.Agents, "agents", o.Agents, "replicas of the agent")
	flags.IntVar(&o.Planes, "planes", o.Planes, "control planes, each with frps in it; with SQLite there is one")
	flags.BoolVar(&o.SQLite, "sqlite", o.SQLite, "the control plane's registry in SQLite instead of PostgreSQL")
	o.Output.Flags(flags)
	return flags
}

// execute does all of it.
func execute(ctx context.Context, o options) (err error) {
	if o.Duration < time.Second || o.Workers < 1 || o.Agents < 1 || o.Planes < 1 {
		return errors.New("-duration has to be a second or more, -workers, -agents and -planes 1 or more")
	}
	if o.SQLite {
		o.Planes = 1
	}
	if o.Seed == 0 {
		o.Seed = rand.Uint64N(1_000_000_000) + 1
	}
	measured, err := figures.Begin(ctx, "chaos", o.Output, o.Duration < usual.Duration)
	if err != nil {
		return err
	}
	c, err := newChaos(o)
	if err != nil {
		return err
	}
	c.books.run = measured
	c.say("seed %d; logs in %s", o.Seed, c.dir)
	defer func() { err = c.end(err) }()
	failed := c.perform(ctx)
	return errors.Join(failed, c.publish(ctx))
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
	c.books.start = c.sizes
	for _, r := range rounds(c.Seed, c.Duration, c.parts()) {
		err := c.round(ctx, r)
		c.books.round(err)
		if err != nil {
			return fmt.Errorf("round %d: %w", r.number, err)
		}
	}
	return nil
}

// again returns how to run the same again.
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
