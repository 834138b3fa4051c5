// Package clidoc compares the reference of a command line, and its verbs, with its commands.
package clidoc

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/scripts/reference/clidoc"
	"github.com/pipeops/pipeops-vm-agent/test/golden"
)

// Check compares the pages with the commands, or writes them again.
func Check(t *testing.T, r clidoc.Reference, root *cobra.Command) {
	t.Helper()
	pages := r.Pages(root)
	checkFlags(t, root)
	if golden.Updating() {
		require.NoError(t, os.RemoveAll(r.Folder()))
		require.NoError(t, os.MkdirAll(r.Folder(), 0o755))
	}
	for file, now := range pages {
		golden.Check(t, file, now, r.Made)
	}
	there, err := filepath.Glob(filepath.Join(r.Folder(), "*"))
	require.NoError(t, err)
	for _, file := range there {
		assert.Contains(t, pages, file, "no group of commands has this page; run: %s", r.Made)
	}
}

// checkFlags wants one word as the type of a flag. pflag takes it from backticks in the usage.
func checkFlags(t *testing.T, cmd *cobra.Command) {
	t.Helper()
	cmd.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		name, _ := pflag.UnquoteUsage(f)
		assert.NotContains(t, name, " ", "%s --%s: leave out the backticks", cmd.CommandPath(), f.Name)
	})
	for _, c := range cmd.Commands() {
		checkFlags(t, c)
	}
}

// CheckVerbs holds the commands of each noun to the table of verbs in docs/reference/commands.md,
// and returns how many there are. No command may have a second name, and each of the root is in a
// group of the help.
func CheckVerbs(t *testing.T, page string, root *cobra.Command) (seen int) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	table, _, found := strings.Cut(string(text), "A command without a noun")
	require.True(t, found, page)
	clidoc.Walk(root, func(cmd *cobra.Command) {
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
