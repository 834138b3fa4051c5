package run

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestPercentile(t *testing.T) {
	var hundred []float64
	for i := 100; i > 0; i-- {
		hundred = append(hundred, float64(i))
	}
	for q, want := range map[float64]float64{0: 1, 0.5: 50, 0.99: 99, 0.991: 100, 1: 100} {
		assert.InDelta(t, want, Percentile(hundred, q), 0, "of %g", q)
	}
	assert.InDelta(t, 7, Percentile([]float64{7}, 0.99), 0)
	assert.InDelta(t, 100, hundred[0], 0, "the values stay in their order")
	assert.True(t, math.IsNaN(Percentile(nil, 0.5)))
}

func TestMedian(t *testing.T) {
	assert.InDelta(t, 2, Median([]float64{3, 1, 2}), 0)
	assert.InDelta(t, 2.5, Median([]float64{4, 1, 2, 3}), 0)
	assert.True(t, math.IsNaN(Median(nil)))
}

func TestRatio_OfTheSameRound(t *testing.T) {
	direct := []float64{100, 50, 200} // the machine is busy in the second round
	assert.InDelta(t, 0.7, Ratio([]float64{70, 30, 160}, direct), 1e-9)
	assert.True(t, math.IsNaN(Ratio(nil, direct)))
}
