package figures

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBound_Holds(t *testing.T) {
	for measured, holds := range map[float64]bool{999: true, 1000: true, 1000.001: false, math.Inf(1): false} {
		assert.Equal(t, holds, atMost(1000).holds(measured), "%v", measured)
	}
	for measured, holds := range map[float64]bool{179.999: false, 180: true, 181: true, math.Inf(-1): false} {
		assert.Equal(t, holds, atLeast(180).holds(measured), "%v", measured)
	}
	assert.False(t, atMost(1).holds(math.NaN()))
	assert.False(t, atLeast(1).holds(math.NaN()))
}

func TestFigure_Text(t *testing.T) {
	for text, f := range map[string]Figure{
		"4 819 903":  {Measured: 4819903},
		"-1 016 ms":  {Measured: -1015.69, Unit: "ms"},
		"0":          {},
		"10.9 ms":    {Measured: 10.9003, Unit: "ms"},
		"0.0041 %":   {Measured: 0.004114, Unit: "%"},
		"3 301/s":    {Measured: 3301.03, Unit: "/s"},
		"1.40":       {Measured: 1.4049, Bound: atMost(1.45)},
		"1.004":      {Measured: 1.0041, Bound: atMost(1)},
		"0.6497":     {Measured: 0.6497, Bound: atLeast(0.65)},
		"1 000.4 ms": {Measured: 1000.4, Unit: "ms", Bound: atMost(1000)},
		"NaN":        {Measured: math.NaN(), Bound: atMost(1)},
		"+Inf":       {Measured: math.Inf(1)},
	} {
		assert.Equal(t, text, f.text())
	}
}

// TestSet_Check: what a page must not show. What it shows is compared with docs/bench by the tests
// of docs.
func TestSet_Check(t *testing.T) {
	s := New(Apps)
	s.Commit, s.Date, s.Machine.CPUs = "abc", "2026-11-23", 2
	for _, d := range Apps.Definitions {
		s.Add(d.ID, 1)
	}
	require.NoError(t, s.Check())
	*s.figure("list_p50").Holds = false
	s.Figures, s.Short = s.Figures[1:], true
	err := s.Check()
	require.ErrorContains(t, err, "figure list_p50 has a bound or a holds that is not as computed")
	require.ErrorContains(t, err, "figure memory_now has a bound and was not measured")
	require.ErrorContains(t, err, "short run")
}
