// Package clidoc makes the reference page of a command line from its commands. Tests hold the
// committed pages to it.
package clidoc

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Page is a reference page.
type Page struct {
	File string // from the test's folder
	Made string // the command that makes it anew
	// Run marks the examples as shell, which tests run.
	Run bool
}

// Check compares the page with the commands, or writes it anew.
func (p Page) Check(t *testing.T, root *cobra.Command, update bool) {
	t.Helper()
	now := p.text(root)
	if update {
		require.NoError(t, os.WriteFile(p.File, now, 0o644))
	}
	committed, err := os.ReadFile(p.File)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(now, committed), "%s is not what the commands say; run: %s", p.File, p.Made)
}

// Walk visits all commands but hidden ones and those that cobra adds of its own.
func Walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	if cmd.Hidden || cmd.Name() == "completion" || cmd.Name() == "help" {
		return
	}
	visit(cmd)
	for _, sub := range cmd.Commands() {
		Walk(sub, visit)
	}
}

func (p Page) text(root *cobra.Command) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\n<!-- Made from the commands: %s -->\n", root.Name(), p.Made)
	Walk(root, func(cmd *cobra.Command) { p.command(&b, cmd) })
	fmt.Fprintf(&b, "\n`%s completion bash|zsh|fish|powershell` prints a completion script.\n", root.Name())
	return b.Bytes()
}

// columns are lines in which spaces matter, with the empty lines around them. Lists are none.
var columns = regexp.MustCompile(`(?m)\n*(?:^ {2,}[^ -].*(?:\n|$))+\n?`)

// fenced puts fences around columns.
func fenced(text string) string {
	text = columns.ReplaceAllStringFunc(text, func(lines string) string {
		return "\n\n```\n" + strings.Trim(lines, "\n") + "\n```\n\n"
	})
	return strings.TrimSpace(text)
}

func (p Page) command(b *bytes.Buffer, cmd *cobra.Command) {
	fmt.Fprintf(b, "\n%s %s\n\n", strings.Repeat("#", min(2+strings.Count(cmd.CommandPath(), " "), 4)), cmd.CommandPath())
	text := cmd.Long
	if text == "" {
		text = cmd.Short + "."
	}
	b.WriteString(fenced(text) + "\n\n")
	if cmd.Runnable() && !cmd.HasSubCommands() {
		fmt.Fprintf(b, "```\n%s\n```\n\n", cmd.UseLine())
	}
	if cmd.Example != "" {
		language := ""
		if p.Run {
			language = "sh"
		}
		fmt.Fprintf(b, "Example:\n\n```%s\n%s\n```\n\n", language, strings.TrimPrefix(strings.ReplaceAll(cmd.Example, "\n  ", "\n"), "  "))
	}
	if flags := cmd.NonInheritedFlags().FlagUsages(); flags != "" {
		fmt.Fprintf(b, "Flags:\n\n```\n%s```\n", flags)
	}
}
