package apps

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

// TestLogs_EscapeControlCharacters on a terminal without --raw; a file gets each byte.
func TestLogs_EscapeControlCharacters(t *testing.T) {
	const line = "a\tb\x1b[2K\u202e\xff"
	for name, c := range map[string]struct {
		screen, raw bool
		want        string
	}{
		"terminal":        {true, false, "a\tb [2K\uFFFD\uFFFD\n"},
		"terminal, --raw": {true, true, line + "\n"},
		"file":            {false, false, line + "\n"},
	} {
		var out bytes.Buffer
		l := &LogsCommand{CLI: &cmdutil.CLI{Streams: cmdutil.Streams{Out: &out, Screen: c.screen}}, out: cli.Output{Format: "table"}, raw: c.raw}
		require.NoError(t, l.Print(runnerapi.LogLine{Line: line}))
		assert.Equal(t, c.want, out.String(), name)
	}
}
