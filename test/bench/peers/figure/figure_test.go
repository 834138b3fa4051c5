package figure_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/bench/peers/figure"
)

func TestABoundThatHoldsIsNoError(t *testing.T) {
	var s figure.Set
	s.Add("a", "without a bound", 1e9, "ms")
	s.AtMost(1.7, "b", "one client's p50", 1.7, "")
	s.AtLeast(180, "c", "down at 40 ms", 180, "MB/s")
	var out bytes.Buffer
	require.NoError(t, s.Report(&out))
	assert.NotContains(t, out.String(), "BROKEN")
}

func TestEachBrokenBoundHasALine(t *testing.T) {
	var s figure.Set
	s.AtMost(1.7, "b", "one client's p50", 1.71, "")
	s.AtLeast(180, "c", "down at 40 ms", 72, "MB/s")
	s.AtLeast(0.65, "d", "requests", 0.7, "")
	var out bytes.Buffer
	require.ErrorIs(t, s.Report(&out), figure.ErrBroken)
	assert.Contains(t, out.String(), "BROKEN: one client's p50 is 1.71, and must be ≤ 1.70\n")
	assert.Contains(t, out.String(), "BROKEN: down at 40 ms is 72 MB/s, and must be ≥ 180 MB/s\n")
	assert.NotContains(t, out.String(), "BROKEN: requests")
}

func TestSavedFiguresAreRead(t *testing.T) {
	s := figure.Set{Part: "tunnel"}
	s.AtMost(2, "x", "an x", 1, "")
	file := filepath.Join(t.TempDir(), "deep", "x.json")
	require.NoError(t, s.Save(file))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var back figure.Set
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, s.Figures, back.Figures)
}
