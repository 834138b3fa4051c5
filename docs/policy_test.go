package docs_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/policy"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
)

//go:generate go test . -run TestPolicyPage_UpToDate -update

const policyDoc = "cluster-owner/policy.md"

// TestPolicyPage_UpToDate compares the table in policy.md with the
// calls there are.
func TestPolicyPage_UpToDate(t *testing.T) {
	have, err := os.ReadFile(policyDoc)
	require.NoError(t, err)
	want := put(t, have, "commands", policyCommands())
	if *update {
		require.NoError(t, os.WriteFile(policyDoc, want, 0o644))
		return
	}
	assert.True(t, bytes.Equal(want, have), "the table of docs/%s is stale; run: go generate ./docs", policyDoc)
}

func policyCommands() string {
	calls := map[string]runnerapi.Call{}
	for _, c := range runnerapi.Calls() {
		calls[c.ID] = c
	}
	all := policy.Commands()
	var b strings.Builder
	b.WriteString("\n| command | access | call | `pipeops-runner` |\n|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		call, command := "", code(calls[name].Command)
		if c := calls[name]; c.ID != "" {
			call = code(c.Method + " " + c.Path)
		}
		if name == runnerapi.AdoptApp { // likewise
			c := calls["put-app"]
			call, command = code(c.Method+" "+c.Path)+" with `adopt=true`", code(c.Command+" --adopt")
		}
		if name == runnerapi.AdoptNamespace { // a part of another call
			c := calls["put-namespace"]
			call, command = code(c.Method+" "+c.Path)+" with `adopt: true`", code(c.Command+" --adopt")
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, all[name], call, command)
	}
	return b.String() + "\n"
}

// TestPolicyPage_ExamplesAreValid reads each example of the pages about policies.
func TestPolicyPage_ExamplesAreValid(t *testing.T) {
	blocks := strings.Split(read(t, policyDoc)+read(t, "deployer/kubernetes-api.md")+read(t, "cluster-owner/lock-down.md"), "```yaml\n")[1:]
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		example, _, _ := strings.Cut(block, "```")
		_, err := policy.Parse([]byte(example))
		require.NoError(t, err, example)
	}
}
