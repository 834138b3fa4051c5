package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/test/harness"
)

// page has the charts' commands and values.
const page = "docs/reference/charts.md"

// documented are the commands of a block of docs/reference/charts.md, with this system's
// addresses in place of the examples'.
func documented(t *testing.T, name string, replace ...string) string {
	t.Helper()
	blocks, err := harness.Named(page, "sh")
	require.NoError(t, err)
	script := blocks[name]
	require.NotEmpty(t, script, "%s has no block %q", page, name)
	for i := 0; i < len(replace); i += 2 {
		require.Contains(t, script, replace[i], "block %q", name)
	}
	return strings.NewReplacer(replace...).Replace(script)
}

// ofAgent is where commands name the agent's namespace.
var ofAgent = regexp.MustCompile(`(-n|namespace) pipeops(\s)`)

// in has commands of docs/reference/charts.md use another namespace for the agent. Kubernetes
// takes more than five seconds to delete one, whatever is in it: tests that have their
// own need not wait until the one before has gone.
func in(namespace, script string) string {
	return ofAgent.ReplaceAllString(script, "${1} "+namespace+"${2}")
}

// TestChart_DocumentedValues has the examples of docs/reference/charts.md be the files that the
// other tests render.
func TestChart_DocumentedValues(t *testing.T) {
	examples, err := harness.Named(page, "yaml")
	require.NoError(t, err)
	require.NotEmpty(t, examples)
	for name, text := range examples {
		chart := agentChart
		if file, ok := strings.CutPrefix(name, "controlplane/"); ok {
			chart, name = controlChart, file
		}
		file, err := os.ReadFile(filepath.Join(harness.Root(), chart, name))
		require.NoError(t, err)
		assert.Equal(t, string(file), text, name)
	}
}
