// Command bench measures the agent as it is shipped, a pod in a real Kubernetes reached through the
// tunnel, against the product's bounds. It measures the agent's memory beside thousands of pods,
// and the time of a list and of a deploy. It also measures what the agent adds to the time from a
// deploy to a ready pod. `make bench` runs it; docs/contributing/bench.md explains the output.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/bench/figures"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := measures()(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench: failed:", err)
		os.Exit(1)
	}
}

// measures returns the run that the first argument names. Without one, that is the agent beside
// many Apps.
func measures() func(context.Context) error {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case figures.Streams.Name:
			return measureStreams
		case figures.Monitoring.Name:
			return measureMonitoring
		}
	}
	return measureApps
}

// size is how much there is and how often it is measured.
type size struct {
	Apps       int
	Replicas   int
	Namespaces int
	Unmanaged  int
	Lists      int
	Deploys    int
	Rounds     int
}

func (s size) managed() int { return s.Apps * s.Replicas }

// nodes returns how many nodes have room for everything, and a tenth more for rollouts.
func (s size) nodes() int { return (s.managed()+s.Unmanaged)*11/10/podsPerNode + 1 }

func (s size) String() string {
	return fmt.Sprintf("%d managed pods of %d Apps beside %d others", s.managed(), s.Apps, s.Unmanaged)
}

func measureApps(ctx context.Context) error {
	var s size
	flag.IntVar(&s.Apps, "apps", 1000, "Apps deployed through the Runner API")
	flag.IntVar(&s.Replicas, "replicas", 5, "pods of each App")
	flag.IntVar(&s.Namespaces, "namespaces", 10, "namespaces that the Apps are in")
	flag.IntVar(&s.Unmanaged, "unmanaged", 20000, "pods that are not the agent's")
	flag.IntVar(&s.Lists, "lists", 100, "list calls")
	flag.IntVar(&s.Deploys, "deploys", 50, "deploys of a changed spec")
	flag.IntVar(&s.Rounds, "rounds", 15, "new Apps to wait for until they are ready, in each way")
	end := endFlags()
	flag.Parse()
	if s.Apps < 1 || s.Replicas < 1 || s.Namespaces < 1 || s.Lists < 1 || s.Deploys < 1 || s.Rounds < 1 {
		return errors.New("all sizes but -unmanaged have to be 1 or more")
	}
	rig, err := newRig(ctx, figures.Apps, end.output)
	if err != nil {
		return err
	}
	b := &bench{size: s, rig: rig}
	return b.finish(ctx, b.perform(ctx), s, end)
}

// ending is what becomes of a run that is over.
type ending struct {
	output figures.Output
	keep   bool
}

func endFlags() *ending {
	e := &ending{}
	e.output.Flags(flag.CommandLine)
	flag.BoolVar(&e.keep, "keep", false, "stay up at the end, until Ctrl-C")
	return e
}

// finish prints and keeps what was measured, and takes everything down.
func (b *rig) finish(ctx context.Context, failed error, size fmt.Stringer, end *ending) (err error) {
	defer func() { err = errors.Join(err, b.close()) }()
	if failed != nil {
		return failed
	}
	fmt.Printf("\n%s; took %s\n\n", size, time.Since(b.start).Round(time.Second))
	broken := b.set.Report(os.Stdout)
	if err := b.set.Publish(flag.CommandLine, nil); err != nil {
		return errors.Join(broken, err)
	}
	if end.keep {
		b.say("staying up; Ctrl-C ends it. kubectl: %s", b.sys.Kubectl())
		<-ctx.Done()
	}
	return broken
}
