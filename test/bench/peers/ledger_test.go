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
	l, start := newLedger(), time.Now()
	assert.Zero(t, l.rate())
	l.begin(start)
	for i := range 101 {
		entered(&l, "a", strconv.Itoa(i), uint64(i+1), start.Add(time.Duration(i)*10*time.Millisecond))
	}
	l.begin(start) // the broker is away for an hour
	for i := range 101 {
		entered(&l, "a", strconv.Itoa(i+101), uint64(i+102), start.Add(time.Hour+time.Duration(i)*10*time.Millisecond))
	}
	assert.InDelta(t, 101, l.rate(), 0.01)
}
