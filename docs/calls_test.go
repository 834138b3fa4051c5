// Package docs_test keeps the documentation true.
package docs_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/deployments"
	"github.com/pipeops/pipeops-vm-agent/runnerapi"
	"github.com/pipeops/pipeops-vm-agent/test/clidoc"
)

//go:generate go test . -run TestRunnerAPIPage_UpToDate -update

var update = flag.Bool("update", false, "write the tables of runner-api.md anew")

const (
	reference = "reference/runner-api.md"
	begin     = "<!-- %s: go generate ./docs -->\n"
	end       = "<!-- end -->\n"
)

// TestRunnerAPIPage_UpToDate compares the tables in runner-api.md with what they
// are made from: runnerapi/calls.go and deployments/rights.go.
func TestRunnerAPIPage_UpToDate(t *testing.T) {
	have, err := os.ReadFile(reference)
	require.NoError(t, err)
	want := have
	for name, table := range map[string]string{"calls": calls(), "upkeep": upkeep()} {
		want = put(t, want, name, table)
	}
	if *update {
		require.NoError(t, os.WriteFile(reference, want, 0o644))
		return
	}
	if !bytes.Equal(want, have) {
		t.Errorf("the tables of docs/%s are stale; run: go generate ./docs", reference)
	}
}

// put puts a table between its marks.
func put(t *testing.T, doc []byte, name, table string) []byte {
	t.Helper()
	mark := fmt.Appendf(nil, begin, name)
	before, rest, ok := bytes.Cut(doc, mark)
	require.True(t, ok, "%s lacks %s", reference, mark)
	_, after, ok := bytes.Cut(rest, []byte(end))
	require.True(t, ok, "%s lacks %s", reference, end)
	return bytes.Join([][]byte{before, mark, []byte(table), []byte(end), after}, nil)
}

func calls() string {
	var b strings.Builder
	b.WriteString("\n| call | Go client | CLI | idempotent | Kubernetes permissions | example |\n|---|---|---|---|---|---|\n")
	for _, c := range runnerapi.Calls() {
		call := c.Method + " " + c.Path
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | `%s` |\n", call, code(c.Client...), code(c.Command), c.Repeated,
			list(deployments.Calls()[c.ID]), strings.ReplaceAll(c.Example, "|", `\|`))
	}
	return b.String() + "\n"
}

func upkeep() string {
	var b strings.Builder
	b.WriteString("\n| what for | Kubernetes permissions |\n|---|---|\n")
	for _, u := range deployments.Upkeeps() {
		fmt.Fprintf(&b, "| %s | %s |\n", u.For, list(u.Rights))
	}
	return b.String() + "\n"
}

func code(words ...string) string {
	var out []string
	for _, w := range words {
		if w != "" {
			out = append(out, "`"+w+"`")
		}
	}
	return strings.Join(out, ", ")
}

// list names the verbs once for resources in a row that have the same.
func list(rights []deployments.Right) string {
	var out strings.Builder
	verbs := ""
	for _, r := range rights {
		v := strings.Join(r.Verbs, ", ")
		switch {
		case r.Own:
			v = "own: " + v
		case r.Nodes:
			v = "[granted apart](../deployer/nodes.md): " + v
		case r.Users:
			v = "[granted apart](../deployer/kubernetes-api.md): " + v
		case r.Sources:
			v = "[granted apart](../deployer/git.md): " + v
		}
		switch {
		case v == verbs:
			out.WriteString(",")
		case verbs != "":
			out.WriteString("; " + v)
		default:
			out.WriteString(v)
		}
		verbs = v
		out.WriteString(" `" + r.Resource + "`")
	}
	return out.String()
}

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
