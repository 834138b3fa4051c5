package figures

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDefinition_Text(t *testing.T) {
	for text, c := range map[string]struct {
		measured float64
		Definition
	}{
		"4 819 903":  {4819903, Definition{}},
		"-1 016 ms":  {-1015.69, Definition{Unit: "ms"}},
		"-102":       {-102, Definition{}},
		"0":          {0, Definition{}},
		"10.9 ms":    {10.9003, Definition{Unit: "ms"}},
		"3 301/s":    {3301.03, Definition{Unit: "/s"}},
		"0.0041 %":   {0.004114, Definition{Unit: "%"}},
		"0.72":       {0.7206, Definition{}},
		"1.40":       {1.4049, Definition{Most: new(1.45)}},
		"1.004":      {1.0041, Definition{Most: new(1.0)}},
		"0.6497":     {0.6497, Definition{Least: new(0.65)}},
		"1 000.4 ms": {1000.4, Definition{Unit: "ms", Most: new(1000.0)}},
	} {
		assert.Equal(t, text, c.text(c.measured))
	}
	assert.False(t, (&Definition{Most: new(1.0)}).holds(math.NaN()))
}

// TestSet_Check: what a page must not show. What it shows is compared with docs/bench by the tests
// of docs.
func TestSet_Check(t *testing.T) {
	s := New("apps")
	for id := range Parts()["apps"][1:] {
		s.Add(s.definitions[id+1].ID, 1000)
	}
	s.Short = true
	err := s.Check()
	for _, says := range []string{"commit, date or machine is missing", "figure memory_now has a bound and was not measured", "short run"} {
		assert.ErrorContains(t, err, says)
	}
	assert.ErrorIs(t, s.Report(t.Output()), ErrBroken)
}
