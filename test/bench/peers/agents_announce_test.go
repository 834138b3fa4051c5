package main

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

func TestLedger_Rate(t *testing.T) {
	l, start, sequence := newLedger(), time.Now(), uint64(0)
	enter := func(at time.Time) {
		l.enter(announce.Event{AgentID: "a", ID: strconv.FormatUint(sequence, 10), Type: "app.progressing", Sequence: sequence}, at)
	}
	hundred := func(start time.Time) {
		for i := range 101 {
			sequence++
			enter(start.Add(time.Duration(i) * 10 * time.Millisecond))
		}
	}
	l.listening()
	hundred(start) // before it is measured
	assert.Zero(t, l.rate())
	l.killed()
	l.listening()
	hundred(start)
	assert.InDelta(t, 101, l.rate(), 0.01)
	l.killed() // it is away for an hour
	sequence++
	enter(start.Add(time.Second)) // sent before it died
	l.listening()
	hundred(start.Add(time.Hour))
	assert.InDelta(t, 101.5, l.rate(), 0.01)
	l.listening() // a connection was lost: the time until another counts
	hundred(start.Add(time.Hour + 9*time.Second))
	assert.InDelta(t, 304/11., l.rate(), 0.01)
	enter(start)
	sequence = 1
	assert.Zero(t, l.disorder)
	assert.Equal(t, 1, l.again)
}
