package chart_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/chart"
)

func TestChartsAreSVGWithTheirWords(t *testing.T) {
	for name, c := range map[string]chart.Chart{
		"bars": {Title: "Rate", Names: []string{"direct", "ours"}, Bound: 0.5, BoundName: "at least",
			Series: []chart.Series{{Name: "50 clients", Bars: []float64{1, 0.7}}, {Name: "200 clients", Bars: []float64{1, 0.8}}}},
		"lines": {Title: "Rate", X: "seconds", Series: []chart.Series{{Name: "50 clients", Line: [][2]float64{{0, 0}, {1, 10}}}}},
	} {
		file := filepath.Join(t.TempDir(), "new", name+".svg")
		require.NoError(t, c.Save(file), name)
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Contains(t, string(text), "<svg", name)
		assert.Contains(t, string(text), "50 clients", name)
	}
}
