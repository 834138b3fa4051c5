package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/runnerapi/announce"
)

func entered(l *ledger, agent, id string, sequence uint64, at time.Time) {
	l.enter(announce.Event{AgentID: agent, ID: id, Type: "app.progressing", Sequence: sequence}, at)
}

func TestTheLedgerSeesRepeatsAndGaps(t *testing.T) {
	l, now := newLedger(), time.Now()
	entered(&l, "a", "1", 1, now)
	entered(&l, "b", "1", 1, now)
	entered(&l, "a", "2", 2, now)
	entered(&l, "a", "2", 2, now) // again
	assert.Equal(t, 1, l.again)
	assert.Zero(t, l.disorder)
	entered(&l, "b", "3", 3, now) // 2 is missing
	assert.Equal(t, 1, l.disorder)
	assert.Len(t, l.apps, 4)
}

func TestTheRateIsOfTheTimeInWhichThereWasABroker(t *testing.T) {
	l, start := newLedger(), time.Now()
	assert.Zero(t, l.rate())
	l.begin(start)
	for i := range 101 {
		entered(&l, "a", "x", uint64(i+1), start.Add(time.Duration(i)*10*time.Millisecond))
	}
	l.begin(start) // the broker is away for an hour
	for i := range 101 {
		entered(&l, "a", "x", uint64(i+102), start.Add(time.Hour+time.Duration(i)*10*time.Millisecond))
	}
	assert.InDelta(t, 101, l.rate(), 0.01)
}
