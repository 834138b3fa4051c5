package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// lane is where a part runs: the parts of a lane one after another, the lanes side by side.
type lane int

const (
	// machinesLane is for parts that mostly wait for machines and clusters.
	machinesLane lane = iota
	// serversLane is for parts on brokers, databases and a control plane.
	serversLane
	// idleLane takes the processor time that the others leave.
	idleLane
	// aloneLane begins when the others have ended: what it measures would be disturbed.
	aloneLane
)

// piece is what is to run of a part.
type piece struct {
	part
	jobs []marked
	cost time.Duration // by the part's estimate
}

// take returns what is to run of a part: of these jobs those that have not passed yet.
func (m *module) take(out io.Writer, p part, jobs []job, files []string) piece {
	total := len(jobs)
	if whole := p.jobs(m); len(whole) > total {
		total = len(whole)
	}
	left := m.unproven(out, p, jobs, files)
	return piece{part: p, jobs: left, cost: p.estimate * time.Duration(len(left)) / time.Duration(max(1, total))}
}

// duration returns how long pieces take together.
func duration(pieces []piece) time.Duration {
	lanes := map[lane]time.Duration{}
	for _, p := range pieces {
		lanes[p.lane] += p.cost
	}
	return max(lanes[machinesLane], lanes[serversLane], lanes[idleLane]) + lanes[aloneLane]
}

// runPieces runs parts of the release suite, with one report. A part that fails keeps no other from
// running.
func runPieces(ctx context.Context, out io.Writer, pieces []piece) error {
	var jobs []*job
	for _, p := range pieces {
		for _, j := range p.jobs {
			jobs = append(jobs, j.job)
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	for _, p := range pieces {
		if len(p.jobs) > 0 {
			fmt.Fprintf(out, "%-10s about %s: %s\n", p.name, round(p.cost), p.what)
		}
	}
	title := fmt.Sprintf("release suite, in lanes side by side, about %s", round(duration(pieces)))
	return follow(out, title, jobs, func(r *report, events chan<- event) error {
		var side sync.WaitGroup
		lanes := make([]error, aloneLane+1)
		for l := range aloneLane {
			side.Go(func() { lanes[l] = runLane(ctx, r, l, pieces, events) })
		}
		side.Wait()
		lanes[aloneLane] = runLane(ctx, r, aloneLane, pieces, events)
		return errors.Join(lanes...)
	})
}

// runLane runs the parts of a lane.
func runLane(ctx context.Context, r *report, l lane, pieces []piece, events chan<- event) error {
	failed := failures{}
	for _, p := range pieces {
		if p.lane != l || len(p.jobs) == 0 || ctx.Err() != nil {
			continue
		}
		failed.add(p.name, runPiece(ctx, r, p, events))
	}
	return failed.err()
}

// runPiece runs a part's jobs, and keeps the marks of those that passed.
func runPiece(ctx context.Context, r *report, p piece, events chan<- event) error {
	start := time.Now()
	var jobs []*job
	for _, j := range p.jobs {
		jobs = append(jobs, j.job)
	}
	err := streamAll(ctx, jobs, cmp.Or(p.atOnce, together), events)
	done := make(chan error, 1)
	events <- event{call: func() { done <- r.endPiece(p, err, time.Since(start)) }}
	return <-done
}

// endPiece returns how a part ended.
func (r *report) endPiece(p piece, err error, took time.Duration) error {
	marks := proven(r, p.jobs)
	switch {
	case err != nil:
		r.say("== part %s FAILED after %s", p.name, round(took))
		return err
	case len(marks) < len(p.jobs):
		r.say("== part %s ended after %s, and is not marked as passed", p.name, round(took))
	default:
		r.say("== part %s passed in %s", p.name, round(took))
	}
	return keep(marks)
}
