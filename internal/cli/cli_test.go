package cli_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
)

func TestOutput_Formats(t *testing.T) {
	for format, want := range map[string]string{
		"table": "NAME   AGE\na b    -\n",
		"json":  "{\n  \"name\": \"<a>\"\n}\n",
		"yaml":  "name: <a>\n",
	} {
		var out cli.Output
		out.Add(&cobra.Command{})
		require.NoError(t, out.Set(format))
		var text bytes.Buffer
		require.NoError(t, out.Write(&text, map[string]string{"name": "<a>"}, func(w io.Writer) {
			cli.Row(w, "NAME", "AGE")
			cli.Row(w, "a\x1bb", "") // an escape sequence of somebody's making
		}))
		assert.Equal(t, want, text.String(), format)
	}
	var out cli.Output
	require.ErrorContains(t, out.Set("xml"), "none of table, wide, markdown, name, json, yaml, jsonpath=TEMPLATE")
}

func TestAgo(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 119 * time.Second: "119s", 2 * time.Minute: "2m", 2 * time.Hour: "2h", 49 * time.Hour: "2d",
	} {
		assert.Equal(t, want, cli.Short(d))
	}
	assert.Equal(t, "never", cli.Ago(time.Time{}))
	assert.Equal(t, "ended", cli.Until(time.Now().Add(-time.Hour)))
}

func TestTime(t *testing.T) {
	assert.Equal(t, "2026-01-02T15:04:05Z", cli.Time(time.Date(2026, 1, 3, 0, 4, 5, 6, time.FixedZone("Tokyo", 9*60*60))))
}

func TestVersion(t *testing.T) {
	cmd := cli.NewVersion("pipeops-x", "v1.2.3", "abc")
	var text bytes.Buffer
	cmd.SetOut(&text)
	require.NoError(t, cmd.Execute())
	assert.Regexp(t, `^pipeops-x v1\.2\.3 \(commit abc, go`, text.String())
}

// TestFlagError_KeyValue; the scripts of pipeops-runner have the other kinds of flags.
func TestFlagError_KeyValue(t *testing.T) {
	cmd := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { return nil }}
	cmd.SetFlagErrorFunc(cli.FlagError)
	cmd.Flags().StringToString("label", nil, "")
	cmd.SetArgs([]string{"--label=env"})
	assert.EqualError(t, cmd.Execute(), `--label: "env" is not KEY=VALUE`)
}
