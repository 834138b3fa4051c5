package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/apps/payload"
)

func TestLinesThatAreMissingDoubledOrChangedAreSeen(t *testing.T) {
	for name, test := range map[string]struct {
		numbers []int
		wrong   int
	}{
		"from any line on":   {[]int{41, 42, 43}, 0},
		"missing":            {[]int{0, 1, 3, 4}, 1},
		"doubled":            {[]int{0, 1, 1, 2}, 1},
		"out of their order": {[]int{0, 2, 1, 3}, 3},
	} {
		r := &reader{size: 80}
		for _, n := range test.numbers {
			require.NoError(t, r.take(runnerapi.LogLine{Line: payload.Line(n, 80)}))
		}
		require.Equal(t, test.wrong, r.wrong, name)
		require.Equal(t, test.wrong > 0, r.complaint != nil, name)
	}
	r := &reader{size: 80}
	require.NoError(t, r.take(runnerapi.LogLine{Line: payload.Line(1, 79)}))
	require.Equal(t, 1, r.wrong, "changed")
}

func TestMemoryThatGrows(t *testing.T) {
	require.EqualValues(t, 5, (&memory{samples: []int64{1, 9, 2, 3, 14, 4}}).growth())
	require.EqualValues(t, -1, (&memory{samples: []int64{3, 2}}).growth())
	require.EqualValues(t, 14, highest([]int64{3, 14, 2}))
}

func TestTheRatioOfMostRoundsCounts(t *testing.T) {
	require.InDelta(t, 1.1, medianOf([]float64{9, 1.1, 0.8}), 0)
	require.InDelta(t, 1, medianOf([]float64{1.2, 1}), 0)
}

func TestTheLastStreamsEndCounts(t *testing.T) {
	e, start := &ends{}, time.Now()
	hold := make(chan struct{})
	e.until(func() {})
	e.until(func() { <-hold })
	later := start.Add(time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := e.after(ctx, start)
	require.Error(t, err, "one goes on")
	close(hold)
	took, err := e.after(t.Context(), later)
	require.NoError(t, err)
	require.Zero(t, took, "they ended before that")
	took, err = e.after(t.Context(), start)
	require.NoError(t, err)
	require.Positive(t, took)
}
