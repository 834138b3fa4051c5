package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/crowd"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/proc"
)

const (
	enrolTimeout   = 10 * time.Minute
	connectTimeout = 3 * time.Minute
	// lookEvery is how often the crowds are asked how their agents are.
	lookEvery = 250 * time.Millisecond
	// tellEvery is how often a long step reports its progress.
	tellEvery = 10 * time.Second
)

// all calls every crowd at the same time.
func (b *agentsBench) all(ctx context.Context, call func(i int) error) error {
	results := make(chan error, len(b.crowds))
	for i := range b.crowds {
		go func() { results <- call(i) }()
	}
	var errs []error
	for range b.crowds {
		select {
		case err := <-results:
			errs = append(errs, err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.Join(errs...)
}

func (b *agentsBench) enrolAll(ctx context.Context, token string) error {
	ctx, cancel := context.WithTimeout(ctx, enrolTimeout)
	defer cancel()
	return b.all(ctx, func(i int) error {
		first, end := i*b.Agents/b.Processes, (i+1)*b.Agents/b.Processes
		return b.crowds[i].Call("Crowd.Enrol", crowd.Enrolment{
			URL: b.sys.APIURL(), CAFile: b.sys.DataDir() + "/ca.pem", Token: token, From: first, Count: end - first,
		}, new(time.Duration))
	})
}

// states adds up how the agents are.
func (b *agentsBench) states(ctx context.Context, since time.Time) (sum crowd.State, err error) {
	states := make([]crowd.State, len(b.crowds))
	err = b.all(ctx, func(i int) error { return b.crowds[i].Call("Crowd.Look", since, &states[i]) })
	for _, s := range states {
		sum.Connected += s.Connected
		sum.Heard += s.Heard
		sum.Back += s.Back
		sum.Beats += s.Beats
		if s.Trouble != "" && !s.TroubleAt.Before(sum.TroubleAt) {
			sum.Trouble, sum.TroubleAt = s.Trouble, s.TroubleAt
		}
	}
	return sum, err
}

// awaitBack waits until all agents have a tunnel and were heard since then.
func (b *agentsBench) awaitBack(ctx context.Context, since time.Time) ([]point, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	curve, told := []point{{}}, since
	var state crowd.State
	tooLate := func() error {
		return fmt.Errorf("%d of %d agents are there after %s, %d have a tunnel, %d a heartbeat answered; what failed last: %s",
			state.Back, b.Agents, time.Since(since).Round(time.Second), state.Connected, state.Heard, state.Trouble)
	}
	for {
		now, err := b.states(ctx, since)
		if ctx.Err() != nil {
			return nil, tooLate()
		}
		if err != nil {
			return nil, err
		}
		state = now
		curve = append(curve, point{time.Since(since).Seconds(), state.Back})
		if state.Back == b.Agents {
			return curve, nil
		}
		if time.Since(told) >= tellEvery {
			told = time.Now()
			b.say("%d of %d have a tunnel, %d a heartbeat answered", state.Connected, b.Agents, state.Heard)
		}
		select {
		case <-ctx.Done():
			return nil, tooLate()
		case <-tick.C:
		}
	}
}

func last(curve []point) float64 { return curve[len(curve)-1].Seconds }

func (b *agentsBench) storm(ctx context.Context) (err error) {
	before, err := b.look()
	if err != nil {
		return err
	}
	profiled := b.profileStorm(ctx)
	start := time.Now()
	if err := b.all(ctx, func(i int) error { return b.crowds[i].Call("Crowd.Connect", crowd.None{}, new(crowd.None)) }); err != nil {
		return err
	}
	if b.curves.Storm, err = b.awaitBack(ctx, start); err != nil {
		return err
	}
	after, err := b.look()
	if err := errors.Join(err, profiled()); err != nil {
		return err
	}
	b.Add("agents.storm.cpu", (after.cpu-before.cpu).Seconds()*1e3/float64(b.Agents))
	b.Add("agents.storm.cpu.crowd", (after.crowds-before.crowds).Seconds()*1e3/float64(b.Agents))
	b.Add("agents.storm", last(b.curves.Storm))
	return nil
}

func (b *agentsBench) restart(ctx context.Context) error {
	start := time.Now()
	if err := b.sys.KillControlPlane(); err != nil {
		return err
	}
	if err := b.sys.RestartControlPlane(ctx); err != nil {
		return err
	}
	b.say("it serves again after %s", time.Since(start).Round(time.Millisecond))
	var err error
	if b.curves.Restart, err = b.awaitBack(ctx, start); err != nil {
		return err
	}
	b.Add("agents.restart", last(b.curves.Restart))
	return nil
}

// usage is what the control plane has taken of the machine until now, and the agents' processes.
type usage struct {
	at       time.Time
	resident int64
	cpu      time.Duration
	crowds   time.Duration // the CPU of the agents' processes
	written  int64
	beats    int64
}

func (b *agentsBench) look() (u usage, err error) {
	var errs [3]error
	pid := b.sys.ControlPlanePID()
	u.at = time.Now()
	u.resident, errs[0] = proc.Resident(pid)
	u.cpu, errs[1] = proc.CPU(pid)
	u.written, errs[2] = proc.Written(pid)
	for _, p := range b.processes {
		cpu, err := proc.CPU(p.PID)
		if err != nil {
			return u, err
		}
		u.crowds += cpu
	}
	return u, errors.Join(errs[:]...)
}

// measureIdle takes memory and CPU when nothing has happened for a while but heartbeats.
func (b *agentsBench) measureIdle(ctx context.Context) error {
	if err := b.rest(ctx, b.Settle); err != nil {
		return err
	}
	before, err := b.lookWithBeats(ctx)
	if err != nil {
		return err
	}
	if err := b.rest(ctx, b.Idle); err != nil {
		return err
	}
	after, err := b.lookWithBeats(ctx)
	if err != nil {
		return err
	}
	if err := b.profileMemory(ctx); err != nil {
		return err
	}
	var crowds int64
	for _, p := range b.processes {
		rss, err := proc.Resident(p.PID)
		if err != nil {
			return err
		}
		crowds += rss
	}
	n := float64(b.Agents)
	b.Add("agents.memory", float64(after.resident-b.empty.resident)/n/1e3)
	b.Add("agents.memory.crowd", float64(crowds)/n/1e3)
	b.Add("agents.memory.together", float64(after.resident+crowds)/1e9)
	share := 100 * (after.cpu - before.cpu).Seconds() / after.at.Sub(before.at).Seconds()
	b.Add("agents.cpu", share/n)
	beats := float64(after.beats - before.beats)
	b.Add("agents.beats", beats/after.at.Sub(before.at).Seconds())
	if beats > 0 {
		b.Add("agents.written", float64(after.written-before.written)/beats/1e3)
	}
	return nil
}

func (b *agentsBench) lookWithBeats(ctx context.Context) (usage, error) {
	state, err := b.states(ctx, time.Time{})
	if err != nil {
		return usage{}, err
	}
	u, err := b.look()
	u.beats = state.Beats
	return u, err
}

// rest lets time pass, which is what is measured.
func (b *agentsBench) rest(ctx context.Context, d time.Duration) error {
	end, tick := time.NewTimer(d), time.NewTicker(tellEvery)
	defer end.Stop()
	defer tick.Stop()
	start := time.Now()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end.C:
			return nil
		case <-tick.C:
			b.say("%s of %s", time.Since(start).Round(time.Second), d)
		}
	}
}
