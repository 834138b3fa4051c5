package command

import (
	"flag"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"

	"github.com/pipeops/pipeops-vm-agent/cmd/runner/command/base"
	"github.com/pipeops/pipeops-vm-agent/test/clidoc"
)

var update = flag.Bool("update", false, "write docs/reference/runner-cli.md and the pages of its groups anew")

func TestReference_UpToDate(t *testing.T) {
	reference := clidoc.Reference{File: "../../../docs/reference/runner-cli.md", Made: "go generate ./cmd/runner", Run: true}
	reference.Check(t, newRoot(&base.CLI{}), *update)
}

// TestVerbs: a command of a noun has a verb of the table.
func TestVerbs(t *testing.T) {
	assert.Greater(t, clidoc.CheckVerbs(t, "../../../docs/reference/commands.md", newRoot(&base.CLI{})), 30)
}

func TestHelp_HasExample(t *testing.T) {
	clidoc.Walk(newRoot(&base.CLI{}), func(cmd *cobra.Command) {
		if !cmd.HasSubCommands() {
			assert.NotEmpty(t, cmd.Example, cmd.CommandPath())
		}
		assert.False(t, strings.HasSuffix(cmd.Short, "."), cmd.CommandPath())
	})
}
