package main

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

func entered(l *ledger, agent, id string, sequence uint64, at time.Time) {
	l.enter(announce.Event{AgentID: agent, ID: id, Type: "app.progressing", Sequence: sequence}, at)
}

func TestTheLedgerSeesRepeatsAndWhatComesTooLate(t *testing.T) {
	l, now := newLedger(), time.Now()
	entered(&l, "a", "1", 1, now)
	entered(&l, "b", "1", 1, now)
	entered(&l, "a", "2", 2, now)
	entered(&l, "a", "1", 1, now) // again
	assert.Equal(t, 1, l.again)
	entered(&l, "b", "3", 3, now)
	assert.Zero(t, l.disorder)
	entered(&l, "b", "2", 2, now) // too late
	assert.Equal(t, 1, l.disorder)
	assert.Equal(t, 5, l.apps)
}

func TestTheRateIsOfTheTimeInWhichThereWasABroker(t *testing.T) {
	l, start, sequence := newLedger(), time.Now(), uint64(0)
	hundred := func(start time.Time) {
		for i := range 101 {
			sequence++
			entered(&l, "a", strconv.FormatUint(sequence, 10), sequence, start.Add(time.Duration(i)*10*time.Millisecond))
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
	entered(&l, "a", "sent before it died", sequence, start.Add(time.Second))
	l.listening()
	hundred(start.Add(time.Hour))
	assert.InDelta(t, 101.5, l.rate(), 0.01)
	l.listening() // a connection was lost: the time until another counts
	hundred(start.Add(time.Hour + 9*time.Second))
	assert.InDelta(t, 304/11., l.rate(), 0.01)
}
