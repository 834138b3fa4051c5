package command

import (
	"net/http"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/cmdutil"
	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/sources"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/scripts/reference/clidoc"
	check "github.com/pipeops/pipeops-vm-agent/test/clidoc"
)

func TestReference_UpToDate(t *testing.T) {
	reference := clidoc.Reference{File: "../../../docs/reference/runner-cli.md", Made: "go generate ./cmd/runner", Run: true}
	check.Check(t, reference, newRoot(&cmdutil.CLI{}))
}

// TestVerbs: a command of a noun has a verb of the table.
func TestVerbs(t *testing.T) {
	assert.Greater(t, check.CheckVerbs(t, "../../../docs/reference/commands.md", newRoot(&cmdutil.CLI{})), 30)
}

func TestHelp_HasExample(t *testing.T) {
	clidoc.Walk(newRoot(&cmdutil.CLI{}), func(cmd *cobra.Command) {
		if !cmd.HasSubCommands() {
			assert.NotEmpty(t, cmd.Example, cmd.CommandPath())
		}
		assert.False(t, strings.HasSuffix(cmd.Short, "."), cmd.CommandPath())
	})
}

// TestWrites_HaveDryRunAndKey: --dry-run and --idempotency-key.
func TestWrites_HaveDryRunAndKey(t *testing.T) {
	root := newRoot(&cmdutil.CLI{})
	seen := 0
	for _, call := range runnerapi.Calls() {
		if call.Method == http.MethodGet || call.Command == "" {
			continue
		}
		cmd, _, err := root.Find(strings.Fields(call.Command))
		require.NoError(t, err, call.Command)
		for _, flag := range []string{"dry-run", "idempotency-key"} {
			assert.NotNil(t, cmd.Flags().Lookup(flag), "%s --%s", call.Command, flag)
		}
		seen++
	}
	assert.Greater(t, seen, 20)
}

// TestSource_FlagsOfFields: errors about a field name a flag that exists.
func TestSource_FlagsOfFields(t *testing.T) {
	cmd, _, err := sources.NewSource(&cmdutil.CLI{}).Find([]string{"set"})
	require.NoError(t, err)
	for field, flags := range sources.FlagOf {
		for flag := range strings.SplitSeq(flags, ", ") {
			if name, isFlag := strings.CutPrefix(flag, "--"); isFlag {
				assert.NotNil(t, cmd.Flags().Lookup(name), "%s is %s", field, flag)
			}
		}
	}
}
