package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/pipeops/pipeops-vm-agent/test/bench/figures"
	"github.com/pipeops/pipeops-vm-agent/test/chaos/ledger"
)

// books are what the figures of a run are made of.
type books struct {
	run   *figures.Run
	start []ledger.Size // before the first fault

	mu               sync.Mutex
	faults           int
	kills            map[string]int // by part
	balanced, failed int            // rounds
	// What the accountant found last.
	objects, excused, unbalanced int
}

// fault counts one that has begun. Several begin at the same time.
func (b *books) fault(f fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.faults++
	if f.kind != killed {
		return
	}
	if b.kills == nil {
		b.kills = map[string]int{}
	}
	b.kills[f.part]++
}

// round counts one that ended.
func (b *books) round(err error) {
	if err != nil {
		b.failed++
		return
	}
	b.balanced++
}

func (b *books) balance(objects, excused, unbalanced int) {
	b.objects, b.excused, b.unbalanced = objects, excused, unbalanced
}

// killsOf returns the kills of all parts whose name begins so.
func (b *books) killsOf(name string) (n int) {
	for part, kills := range b.kills {
		if strings.HasPrefix(part, name) {
			n += kills
		}
	}
	return n
}

// figures adds all that the books have.
func (b *books) figures(set *figures.Set) {
	for id, n := range map[string]int{
		"failed": b.failed, "unbalanced": b.unbalanced, "rounds": b.balanced, "objects": b.objects, "excused": b.excused,
		"faults": b.faults, "kills": b.killsOf(""), "kills.broker": b.killsOf(brokerName), "kills.database": b.killsOf(databaseName),
		"kills.kubernetes": b.killsOf(apiServerName), "kills.planes": b.killsOf(planeName), "kills.agents": b.killsOf(agentPrefix),
	} {
		set.Add(id, float64(n))
	}
}

// sizes returns what each process had before the first fault and has now.
func (b *books) sizes(now []ledger.Size) figures.Table {
	table := figures.Table{Columns: []string{"process, at the start → after", "MiB in use", "MiB resident", "goroutines", "open files"}}
	for i, was := range b.start {
		if i >= len(now) {
			break
		}
		is := now[i] // measure has the same order each time
		change := func(was, is int64) string { return fmt.Sprintf("%d → %d", was, is) }
		table.Rows = append(table.Rows, []string{
			is.Process, change(was.Memory>>20, is.Memory>>20), change(was.Resident>>20, is.Resident>>20),
			change(was.Goroutines, is.Goroutines), change(int64(was.Files), int64(is.Files)),
		})
	}
	return table
}

// publish writes the figures of a run that was not given up: also of one whose books do not
// balance.
func (c *chaos) publish(ctx context.Context) error {
	if c.Output.Dir == "" || c.books.balanced+c.books.failed == 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	commands, err := c.ledger.Commands()
	if err != nil {
		return fmt.Errorf("the ledger was not written: %w", err)
	}
	set := c.books.run
	c.books.figures(set.Set)
	n := ledger.Count(commands)
	set.Add("acknowledged", float64(n[ledger.Acknowledged]))
	set.Add("refused", float64(n[ledger.Refused]))
	set.Add("unanswered", float64(n[ledger.Unanswered]))
	set.Add("heard", float64(len(c.listener.all())))
	set.Add("audited", float64(len(c.auditor.all())))
	set.Tables = []figures.Table{c.books.sizes(c.sizes)}
	broken := set.Report(os.Stdout)
	if err := set.Publish(c.flags()); err != nil {
		return err
	}
	return broken
}
