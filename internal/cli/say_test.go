package cli_test

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

const hostile = "a\x1b[2K\u009b2K\u202e\u200b\u2028b\U000e0041\x7f\n"

func TestSay_EscapesControlCharacters(t *testing.T) {
	value := map[string]any{"name": hostile, hostile: []string{hostile, "plain: \"text\""}, "n": 7}
	for _, format := range append(cli.Formats, "jsonpath={.name}") {
		out := cli.Output{Format: format}
		var text bytes.Buffer
		require.NoError(t, out.Write(&text, value, func(w io.Writer) { cli.Row(w, hostile); cli.Say(w, "%s", hostile) }))
		assert.False(t, strings.ContainsFunc(strings.ReplaceAll(text.String(), "\n", ""), printable.Hidden), "%s: %q", format, text.String())
		var back map[string]any
		switch format {
		case "json":
			require.NoError(t, json.Unmarshal(text.Bytes(), &back))
		case "yaml":
			require.NoError(t, yaml.Unmarshal(text.Bytes(), &back), text.String())
		default:
			continue
		}
		assert.Equal(t, map[string]any{"name": hostile, hostile: []any{hostile, "plain: \"text\""}, "n": float64(7)}, back, "what it says stays")
	}
	var said bytes.Buffer
	cli.Say(&said, "\nError: %s\n  fix: none", "b\x1b[2K\u202e")
	cli.Progress(&said, "%s", "c\x1b[2Jd\n")
	assert.Equal(t, "\nError: b [2K\uFFFD\n  fix: none\n\r\x1b[Kc [2Jd ", said.String())
	said.Reset()
	require.NoError(t, cli.JSONLine(&said, map[string]string{"a": "\u202e"}))
	assert.Equal(t, "{\"a\":\"\\u202e\"}\n", said.String())
}
