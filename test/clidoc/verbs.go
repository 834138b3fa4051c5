package clidoc

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// CheckVerbs holds the commands of each noun to the table of verbs in docs/reference/commands.md,
// and returns how many there are. No command may have a second name, and each of the root is in a
// group of the help.
func CheckVerbs(t *testing.T, page string, root *cobra.Command) (seen int) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	table, _, found := strings.Cut(string(text), "A command without a noun")
	require.True(t, found, page)
	Walk(root, func(cmd *cobra.Command) {
		assert.Empty(t, cmd.Aliases, "%s has a second name", cmd.CommandPath())
		if noun := cmd.Parent(); noun != nil && noun.HasParent() && !cmd.HasSubCommands() {
			assert.Contains(t, table, "`"+cmd.Name()+"`", cmd.CommandPath())
			seen++
		}
		if cmd.Parent() == root && cmd.Name() != "version" && cmd.Name() != "explain" {
			assert.NotEmpty(t, cmd.GroupID, "%s is in no group of the help", cmd.CommandPath())
		}
		if cmd.HasSubCommands() && cmd.HasParent() {
			assert.Error(t, cmd.RunE(cmd, nil), "%s does something beside its subcommands", cmd.CommandPath())
		}
	})
	return seen
}
