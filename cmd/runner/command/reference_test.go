package command

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/base"
	"github.com/pipeops/pipeops-vm-agent/test/clidoc"
)

var update = flag.Bool("update", false, "write docs/reference/runner-cli.md again")

func TestReferenceIsCommitted(t *testing.T) {
	page := clidoc.Page{File: "../../../docs/reference/runner-cli.md", Made: "go generate ./cmd/runner", Run: true}
	page.Check(t, newRoot(&base.CLI{}), *update)
}

// TestEachVerbMeansOneAct: a command of a noun has a verb of the table.
func TestEachVerbMeansOneAct(t *testing.T) {
	page, err := os.ReadFile("../../../docs/reference/commands.md")
	require.NoError(t, err)
	table, _, _ := strings.Cut(string(page), "A command without a noun")
	seen := 0
	clidoc.Walk(newRoot(&base.CLI{}), func(cmd *cobra.Command) {
		if noun := cmd.Parent(); noun != nil && noun.HasParent() {
			assert.Contains(t, table, "`"+cmd.Name()+"`", cmd.CommandPath())
			seen++
		}
		if cmd.HasParent() && !cmd.Parent().HasParent() && cmd.Name() != "version" {
			assert.NotEmpty(t, cmd.GroupID, "%s is in no group of the help", cmd.CommandPath())
		}
	})
	assert.Greater(t, seen, 30)
}

func TestEveryCommandHasAnExample(t *testing.T) {
	clidoc.Walk(newRoot(&base.CLI{}), func(cmd *cobra.Command) {
		if !cmd.HasSubCommands() {
			assert.NotEmpty(t, cmd.Example, cmd.CommandPath())
		}
		assert.False(t, strings.HasSuffix(cmd.Short, "."), cmd.CommandPath())
	})
}
