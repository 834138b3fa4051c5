package cli_test

import (
	"bytes"
	"io"
	"strings"
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
	require.ErrorContains(t, out.Set("xml"), "none of table, wide, name, json, yaml, jsonpath=TEMPLATE")
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

func TestFlagError(t *testing.T) {
	cmd := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true, RunE: func(*cobra.Command, []string) error { return nil }}
	cmd.SetFlagErrorFunc(cli.FlagError)
	cmd.Flags().Int32("replicas", 0, "")
	cmd.Flags().Duration("wait", 0, "")
	cmd.Flags().Bool("yes", false, "")
	cmd.Flags().StringToString("label", nil, "")
	var out cli.Output
	out.Add(cmd)
	for arg, want := range map[string]string{
		"--replicas=x":           `--replicas: "x" is not a whole number`,
		"--replicas=99999999999": `--replicas: "99999999999" is too large a number`,
		"--wait=5":               `--wait: "5" is not a time such as 30s, 5m or 1h`,
		"--yes=maybe":            `--yes: "maybe" is neither true nor false`,
		"-o=xml":                 `--output: "xml" is none of table, wide, name, json, yaml, jsonpath=TEMPLATE`,
		"--label=env":            `--label: "env" is not KEY=VALUE`,
		"--colour":               `unknown flag: --colour`,
		"--replica=3":            `unknown flag: --replica (did you mean --replicas?)`,
	} {
		cmd.SetArgs([]string{arg})
		assert.EqualError(t, cmd.Execute(), want)
	}
}

func TestUnknownCommand_ListsCommands(t *testing.T) {
	root := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true}
	group := &cobra.Command{Use: "secret", Args: cobra.ArbitraryArgs, RunE: cli.NoSubcommand}
	for _, use := range []string{"get AGENT", "list AGENT"} {
		group.AddCommand(&cobra.Command{Use: use, Run: func(*cobra.Command, []string) {}})
	}
	root.AddCommand(group)
	for args, want := range map[string]string{
		"secret":      "x secret needs a subcommand: get, list",
		"secret lsit": `unknown command "lsit" of x secret (did you mean list?); it has get, list`,
		"secret fly":  `unknown command "fly" of x secret; it has get, list`,
		"secrte":      `unknown command "secrte" for "x" (did you mean secret?)`,
		"fly":         `unknown command "fly" for "x"`,
	} {
		root.SetArgs(strings.Fields(args))
		err := root.Execute()
		if unknown := cli.UnknownCommand(err); unknown != nil {
			err = unknown
		}
		assert.EqualError(t, err, want)
	}
	assert.NoError(t, cli.UnknownCommand(nil))
	assert.NoError(t, cli.UnknownCommand(io.EOF))
}
