// Package docs_test keeps the documentation true.
package docs_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/scripts/reference/clidoc"
)

//go:generate go run ../scripts/reference -root ..

// TestRunnerCLIPage_HasAllCommands finds each command in the reference of pipeops-runner, which
// is made from the commands there are.
func TestRunnerCLIPage_HasAllCommands(t *testing.T) {
	cli, err := clidoc.Read("reference/runner-cli.md")
	require.NoError(t, err)
	for _, c := range runnerapi.Calls() {
		command, _, _ := strings.Cut(c.Command, " -")
		if command == "" {
			assert.True(t, strings.HasPrefix(c.Example, "curl "), "%s %s has no command, so its example is curl's", c.Method, c.Path)
			continue
		}
		assert.Contains(t, cli, "# pipeops-runner "+command+"\n", "%s %s", c.Method, c.Path)
		assert.Contains(t, c.Example, "pipeops-runner "+command, "the example of %s %s is of its command", c.Method, c.Path)
	}
}
