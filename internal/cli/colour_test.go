package cli

import (
	"bytes"
	"os"
	"testing"
	"text/tabwriter"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestColour_KeepsColumns(t *testing.T) {
	g := &grid{left: map[int]bool{}}
	Row(g, "NAME", "STATE", "AGE")
	Row(g, "a", "Healthy", "1s")
	Row(g, "b", "Failed", "2s")
	Row(g, "State:", "paused")
	g.colour()
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 1, ' ', 0)
	for _, l := range g.lines {
		for i, cell := range l.cells {
			if i > 0 {
				_, _ = w.Write([]byte("\t"))
			}
			_, _ = w.Write([]byte(cell))
		}
		_, _ = w.Write([]byte("\n"))
	}
	require.NoError(t, w.Flush())
	assert.Equal(t, "NAME   \x1b[39mSTATE\x1b[0m   AGE\n"+
		"a      \x1b[32mHealthy\x1b[0m 1s\n"+
		"b      \x1b[31mFailed\x1b[0m  2s\n"+
		"State: \x1b[33mpaused\x1b[0m\n", text.String())
	file, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	assert.False(t, coloured(file))
	assert.False(t, coloured(&text))
}
