package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

//go:generate go test . -run TestReferenceIsCommitted -update

var update = flag.Bool("update", false, "write docs/runner-cli.md anew")

const referenceFile = "../../docs/runner-cli.md"

func TestReferenceIsCommitted(t *testing.T) {
	now := reference()
	if *update {
		require.NoError(t, os.WriteFile(referenceFile, now, 0o644))
	}
	committed, err := os.ReadFile(referenceFile)
	require.NoError(t, err)
	if !bytes.Equal(now, committed) {
		t.Errorf("%s is not what the commands say; run: go generate ./cmd/runner", referenceFile)
	}
}

func TestEveryCommandHasAnExample(t *testing.T) {
	walk(newRoot(&app{}), func(cmd *cobra.Command) {
		if !cmd.HasSubCommands() {
			assert.NotEmpty(t, cmd.Example, cmd.CommandPath())
		}
		assert.False(t, strings.HasSuffix(cmd.Short, "."), cmd.CommandPath())
	})
}

// walk visits all commands but those that cobra adds of its own.
func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	if cmd.Name() == "completion" || cmd.Name() == "help" {
		return
	}
	visit(cmd)
	for _, sub := range cmd.Commands() {
		walk(sub, visit)
	}
}

func reference() []byte {
	var b bytes.Buffer
	b.WriteString("# pipeops-runner\n\n<!-- Made from the commands: go generate ./cmd/runner -->\n")
	walk(newRoot(&app{}), func(cmd *cobra.Command) {
		fmt.Fprintf(&b, "\n%s %s\n\n", strings.Repeat("#", min(2+strings.Count(cmd.CommandPath(), " "), 4)), cmd.CommandPath())
		text := cmd.Long
		if text == "" {
			text = cmd.Short + "."
		}
		// Fenced where columns matter.
		prose, columns, _ := strings.Cut(text, "Exit codes:\n")
		b.WriteString(strings.TrimSpace(prose) + "\n\n")
		if columns != "" {
			b.WriteString("Exit codes:\n\n```\n" + columns + "\n```\n\n")
		}
		if cmd.Runnable() && !cmd.HasSubCommands() {
			fmt.Fprintf(&b, "```\n%s\n```\n\n", cmd.UseLine())
		}
		if cmd.Example != "" {
			fmt.Fprintf(&b, "Example:\n\n```sh\n%s\n```\n\n", strings.TrimPrefix(strings.ReplaceAll(cmd.Example, "\n  ", "\n"), "  "))
		}
		if flags := cmd.NonInheritedFlags().FlagUsages(); flags != "" {
			fmt.Fprintf(&b, "Flags:\n\n```\n%s```\n", flags)
		}
	})
	b.WriteString("\n`pipeops-runner completion bash|zsh|fish|powershell` prints a completion script.\n")
	return b.Bytes()
}
