package main

import (
	"errors"
	"flag"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/bench/figures"
	"github.com/pipeops/pipeops-vm-agent/test/chaos/ledger"
)

// measured are figures by their IDs.
func measured(b *books) (found map[string]float64, broken []string) {
	set := figures.New(figures.Chaos)
	b.figures(set)
	found = map[string]float64{}
	for _, f := range set.Figures {
		found[f.ID] = f.Measured
		if f.Holds != nil && !*f.Holds {
			broken = append(broken, f.ID)
		}
	}
	return found, broken
}

func TestFaultsAndKillsAreCounted(t *testing.T) {
	var b books
	for _, f := range []fault{
		{part: "control plane 1", kind: killed}, {part: "control plane 2", kind: killed}, {part: "agent-1", kind: killed},
		{part: "RabbitMQ", kind: killed}, {part: "PostgreSQL", kind: killed}, {part: "API server", kind: killed},
		{part: "RabbitMQ", kind: "held"}, {part: "control plane to broker", kind: "cut"},
	} {
		b.fault(f)
	}
	found, broken := measured(&b)
	assert.Empty(t, broken)
	for id, n := range map[string]float64{
		"faults": 8, "kills": 6, "kills.planes": 2, "kills.agents": 1, "kills.broker": 1, "kills.database": 1, "kills.kubernetes": 1,
	} {
		assert.Equal(t, n, found[id], id)
	}
}

func TestARoundThatFailedIsBroken(t *testing.T) {
	var b books
	b.balance(643, 12, 0)
	b.round(nil)
	b.balance(650, 13, 2)
	b.round(errors.New("2 things do not balance"))
	found, broken := measured(&b)
	assert.ElementsMatch(t, []string{"failed", "unbalanced"}, broken)
	for id, n := range map[string]float64{"failed": 1, "rounds": 1, "unbalanced": 2, "objects": 650, "excused": 13} {
		assert.Equal(t, n, found[id], id)
	}
}

func TestSizesAreThoseOfBothEnds(t *testing.T) {
	b := books{start: []ledger.Size{{Process: "agent-1", Memory: 13 << 20, Resident: 59 << 20, Goroutines: 239, Files: 40}}}
	table := b.sizes([]ledger.Size{{Process: "agent-1", Memory: 15 << 20, Resident: 78 << 20, Goroutines: 267, Files: 41}})
	assert.Equal(t, [][]string{{"agent-1", "13 → 15", "59 → 78", "239 → 267", "40 → 41"}}, table.Rows)
	assert.Len(t, table.Columns, len(table.Rows[0]))
}

// TestFlagsKeepTheirValues: so the sizes of a run have the seed that it chose.
func TestFlagsKeepTheirValues(t *testing.T) {
	o := usual
	o.Seed, o.Duration, o.Output.Dir = 7, time.Minute, "x"
	var values []string
	o.flags().VisitAll(func(f *flag.Flag) { values = append(values, f.Name+" "+f.Value.String()) })
	assert.Subset(t, values, []string{"seed 7", "duration 1m0s", "out x", "planes 2"})
	assert.Equal(t, time.Minute, o.Duration)
}

func TestFiguresOfARunThatMustNotBalanceAreNotKept(t *testing.T) {
	o := usual
	o.Sabotage, o.Output.Dir = true, t.TempDir()
	require.ErrorContains(t, run(t.Context(), o), "-sabotage")
}
