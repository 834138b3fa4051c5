package main

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/test/bench/figures"
	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/way"
)

func TestRatiosAreOfTheSameRound(t *testing.T) {
	var r tunnelResults
	for i, direct := range []float64{100, 50, 200} { // the machine is busy in the second round
		r.add(way.Direct, way.HTTP1, "rps.50", direct)
		r.add(way.Ours, way.HTTP1, "rps.50", direct*[]float64{0.7, 0.6, 0.8}[i])
	}
	assert.InDelta(t, 0.7, r.ratio(rowKey{way.Ours, way.HTTP1}, rowKey{way.Direct, way.HTTP1}, "rps.50"), 1e-9)
	assert.True(t, math.IsNaN(r.ratio(rowKey{"frp", way.HTTP1}, rowKey{way.Direct, way.HTTP1}, "rps.50")))
}

func TestWhatARequestTakesIsOfAllProcesses(t *testing.T) {
	var r tunnelResults
	before := taken{relay: time.Second, agent: time.Second, load: time.Second}
	after := taken{relay: 2 * time.Second, agent: 3 * time.Second, load: 4 * time.Second}
	r.took(&contender{name: way.Ours, protocol: way.HTTP1}, "50", after.since(before), 60_000)
	key := rowKey{way.Ours, way.HTTP1}
	assert.InDelta(t, 100, r.median(key, "cpu.50"), 1e-9)
	assert.InDelta(t, 100./6, r.median(key, "cpu.50.relay"), 1e-9)
	assert.InDelta(t, 200./6, r.median(key, "cpu.50.agent"), 1e-9)
	assert.InDelta(t, 300./6, r.median(key, "cpu.50.load"), 1e-9)
}

// sample is a run of one round in which all of ours is that share of direct's.
func sample(share float64) *tunnelResults {
	r := &tunnelResults{}
	for _, p := range []way.Protocol{way.HTTP1, way.HTTP2} {
		for _, what := range []string{"rps.50", "rps.200", "bulk.down", "bulk.up"} {
			r.add(way.Direct, p, what, 1000)
			r.add(way.Ours, p, what, 1000*share)
		}
		for _, level := range levels[1:] {
			r.add(way.Ours, p, besidePeers(level), 1000*share)
		}
		for _, what := range []string{"p99.50", "p50.1"} {
			r.add(way.Direct, p, what, 100)
			r.add(way.Ours, p, what, 100/share)
		}
		for _, what := range []string{"beside.alone", "beside.stalled", "beside.full speed"} {
			r.add(way.Direct, p, what, 100)
			r.add(way.Ours, p, what, 100)
		}
		r.add(way.Ours, p, "far.down", 400*share)
		r.add(way.Ours, p, "far.up", 400*share)
	}
	for _, level := range levels[1:] {
		r.add("frp", way.HTTP1, besidePeers(level), 500)
	}
	r.add(way.Ours, way.HTTP1, "reconnect", 1)
	return r
}

func TestTheBoundsOfTheTunnelAreChecked(t *testing.T) {
	for share, broken := range map[float64]bool{1: false, 0.4: true} {
		set := figures.New(figures.Tunnel)
		sample(share).figures(set)
		assert.Len(t, set.Figures, 2*10+2+1)
		var out bytes.Buffer
		if err := set.Report(&out); broken {
			assert.ErrorIs(t, err, figures.ErrBroken)
			assert.Contains(t, out.String(), "requests/s of 50 clients, to those over frp is 0.80, and must be ≥ 1.4")
		} else {
			assert.NoError(t, err, out.String())
		}
	}
}

// TestPeersTakePartInEveryThirdRound: from the first on, so that a run of one round has all.
func TestPeersTakePartInEveryThirdRound(t *testing.T) {
	b := &tunnelBench{contenders: []*contender{{name: way.Direct}, {name: way.Ours}, {name: "frp"}}}
	var took []string
	for round := range 4 {
		var names string
		for _, c := range b.taking(round) {
			names += c.name + " "
		}
		took = append(took, names)
	}
	assert.Equal(t, []string{"direct pipeops frp ", "pipeops direct ", "direct pipeops ", "frp pipeops direct "}, took)
}
