package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fakeParts fail in no real way.
func fakeParts() []part {
	nothing := func(context.Context) error { return nil }
	own := []kind{{name: "killed", weight: 1, kills: true, longest: longDown, begin: nothing, end: nothing}, {name: "held", weight: 1, longest: longHeld, begin: nothing, end: nothing}}
	return []part{{"control plane", own}, {"agent-1", own}, {"wire", []kind{{name: "cut", weight: 1, longest: longCut, begin: nothing, end: nothing}, {name: "reset", weight: 1, begin: nothing}}}}
}

// plain is what of a fault can be compared.
func plain(all []round) (faults []fault) {
	for _, r := range all {
		for _, f := range r.faults {
			f.do = kind{}
			faults = append(faults, f)
		}
	}
	return faults
}

func TestTheSeedDecidesThePlan(t *testing.T) {
	one := plain(rounds(7, time.Hour, fakeParts()))
	require.NotEmpty(t, one)
	assert.Equal(t, one, plain(rounds(7, time.Hour, fakeParts())))
	assert.NotEqual(t, one, plain(rounds(8, time.Hour, fakeParts())))
}

func TestAPlanKeepsItsBounds(t *testing.T) {
	for _, duration := range []time.Duration{time.Minute, 5 * time.Minute, time.Hour} {
		all := rounds(1, duration, fakeParts())
		sum := time.Duration(0)
		for i, r := range all {
			sum += r.length
			assert.LessOrEqual(t, r.length, longestTurn)
			assert.Equal(t, i%2 == 1, r.whole)
			assert.NotEmpty(t, r.faults)
			until := map[string]time.Duration{}
			for _, f := range r.faults {
				assert.LessOrEqual(t, f.at+f.lasts, r.length, "a fault ends with its round")
				assert.LessOrEqual(t, until[f.part], f.at, "a part fails in one way at a time")
				until[f.part] = f.at + f.lasts
				assert.False(t, r.whole && f.kind == "killed", "a round after which growth is looked at kills nothing of ours")
			}
		}
		assert.InDelta(t, duration.Seconds(), sum.Seconds(), 0.001)
	}
}

// TestWhatBeganIsEnded injects faults while the run is given up.
func TestWhatBeganIsEnded(t *testing.T) {
	c, err := newChaos(options{Seed: 1, Duration: time.Minute, Workers: 1, Agents: 1, Planes: 2})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.end(nil)) })
	ctx, cancel := context.WithCancel(t.Context())
	ended := false
	f := fault{part: "wire", kind: "cut", lasts: time.Hour, do: kind{
		begin: func(context.Context) error { cancel(); return nil },
		end:   func(ctx context.Context) error { ended = true; return ctx.Err() },
	}}
	require.NoError(t, c.inject(ctx, f))
	assert.True(t, ended)
}

func TestTheLineThatRunsTheSameAgain(t *testing.T) {
	o := usual
	o.Seed = 7
	assert.Equal(t, "make chaos SEED=7 DURATION=1h0m0s", o.again())

	one := o
	one.Duration, one.Planes = 5*time.Minute, 1
	assert.Equal(t, "make chaos SEED=7 DURATION=5m0s CHAOS_FLAGS='-planes 1'", one.again())

	sqlite := o
	sqlite.SQLite, sqlite.Agents, sqlite.Planes = true, 1, 1
	assert.Equal(t, "make chaos SEED=7 DURATION=1h0m0s CHAOS_FLAGS='-sqlite -agents 1'", sqlite.again())
}
