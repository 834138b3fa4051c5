package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/bench/run"
	"github.com/pipeops/pipeops-vm-agent/test/chaos/ledger"
	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

const (
	// settleTimeout is how long everything may take to settle once nothing fails any more: the
	// longest pauses between retries are half a minute.
	settleTimeout = 3 * time.Minute
	progressEvery = 30 * time.Second
)

// round lets Runners work while parts fail, waits until everything has settled, and compares the
// results.
func (c *chaos) round(ctx context.Context, r round) error {
	if r.number > 0 {
		c.say("round %d: %s, %d faults%s", r.number, r.length.Round(time.Second), len(r.faults),
			map[bool]string{true: ", which kill no process of the product"}[r.whole])
	}
	working, giveUp := context.WithCancel(ctx)
	defer giveUp()
	rest := make(chan struct{})
	var work sync.WaitGroup
	for _, w := range c.workers {
		work.Go(func() { w.work(working, rest) })
	}
	work.Go(func() { c.auditor.follow(working, rest) })
	work.Go(func() { c.progress(working, rest) })
	over := time.Now().Add(r.length)
	err := c.fail(ctx, r.faults)
	if err == nil && !sleep(ctx, time.Until(over)) {
		err = ctx.Err()
	}
	close(rest)
	if err == nil {
		err = c.settle(ctx, &work)
	}
	giveUp()
	work.Wait()
	if err != nil {
		return err
	}
	return c.account(ctx, r)
}

// progress prints the progress at intervals.
func (c *chaos) progress(ctx context.Context, rest <-chan struct{}) {
	every(ctx, rest, progressEvery, func() { c.say("%s", c.figures()) })
}

// every calls a function at intervals until rest is closed.
func every(ctx context.Context, rest <-chan struct{}, interval time.Duration, do func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-rest:
			return
		case <-tick.C:
			do()
		}
	}
}

func (c *chaos) figures() string {
	commands, _ := c.ledger.Commands() // the accountant reports an error
	n := ledger.Count(commands)
	return fmt.Sprintf("commands: %d acknowledged, %d refused, %d without an answer; %d events heard; %d records of the audit log",
		n[ledger.Acknowledged], n[ledger.Refused], n[ledger.Unanswered], len(c.listener.all()), len(c.auditor.all()))
}

// settle waits until nothing is in progress: each command has ended, the cluster has carried it
// out, and all Runners have received the announcements.
func (c *chaos) settle(ctx context.Context, work *sync.WaitGroup) error {
	start := time.Now()
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	done := make(chan struct{})
	go func() { work.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		// If a process has ended by itself, no answer can come.
		return errors.Join(fmt.Errorf("nothing fails any more, and after %s there is still: %w", settleTimeout, c.busy()), c.ended())
	}
	for _, step := range []struct {
		what  string
		check func(context.Context)
	}{
		{"every process of the product runs", c.allRun},
		{"the agent is online to the Runner", func(ctx context.Context) { run.Check(c.listener.online(ctx)) }},
		{"every App is healthy and was announced", c.appsSettled},
		{"the Runner knows what the control plane knows", c.allHeard},
		{"the audit log has every command", c.allAudited},
		{"the control plane has the whole audit log", c.handedOver},
	} {
		if err := eventually(ctx, step.what, step.check); err != nil {
			return err
		}
	}
	c.say("all is quiet, %s after the last fault", time.Since(start).Round(100*time.Millisecond))
	return nil
}

// busy returns what the workers are still doing.
func (c *chaos) busy() error {
	var errs []error
	for _, w := range c.workers {
		if text := w.doing.Load(); text != nil {
			errs = append(errs, errors.New(*text))
		}
	}
	return errors.Join(errs...)
}

// allRun fails with each process that has ended without being killed.
func (c *chaos) allRun(ctx context.Context) {
	errs := []error{c.ended()}
	for _, p := range c.planes {
		errs = append(errs, c.awaitPlane(ctx, p))
	}
	run.Check(errors.Join(errs...))
}

// ended returns an error for a process of the product that has ended by itself.
func (c *chaos) ended() error {
	var errs []error
	check := func(name string, p *harness.Program) {
		if !p.Running() {
			errs = append(errs, fmt.Errorf("%s has ended by itself; its last lines:\n%s", name, p.LastLines(10)))
		}
	}
	for _, p := range c.planes {
		check(p.name, p.Program)
	}
	for _, a := range c.agents {
		check(a.name, a.Program)
	}
	return errors.Join(errs...)
}
