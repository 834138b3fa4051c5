package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/scripts/reference/clidoc"
)

var (
	// commandHead is a command's heading in a reference page.
	commandHead = regexp.MustCompile(`(?m)^##+ (pipeops-[a-z -]+)$`)
	// inCode is what stands between fences or backticks.
	inCode = regexp.MustCompile("(?s)```.*?```|`[^`\n]+`")
	// called is one of our programs with what follows, up to the end of the command.
	called = regexp.MustCompile("pipeops-(?:runner|controlplane|agent) [^ \n`|;&>)][^\n`|;&>)]*")
	// ofInputs are the commands that scripts/ci gets as an input.
	ofInputs = regexp.MustCompile(`\b(?:deploy|rollback) shop [^'\n]*`)
	// others are cobra's own command, and what OpenRC does with the service of the agent's name.
	others = []string{"completion", "default", "start", "stop"}
	word   = regexp.MustCompile(`^[a-z][a-z-]*$`)
	option = regexp.MustCompile(`^(--[a-z][a-z-]*|-[a-zA-Z])(?:$|=)`)
)

// TestPages_CommandsExist looks up commands and flags, those of the example CI jobs too, in the
// generated references.
func TestPages_CommandsExist(t *testing.T) {
	known := map[string]string{} // what the reference says about each command
	for _, page := range []string{"runner", "controlplane", "agent"} {
		known["pipeops-"+page] = read(t, "reference/"+page+"-cli.md")
		text, err := clidoc.Read("reference/" + page + "-cli.md")
		require.NoError(t, err)
		heads := commandHead.FindAllStringSubmatchIndex(text, -1)
		require.NotEmpty(t, heads)
		for i, h := range heads {
			end := len(text)
			if i+1 < len(heads) {
				end = heads[i+1][0]
			}
			known[text[h[2]:h[3]]] = text[h[1]:end]
		}
	}
	found := 0
	for page := range pages(t) {
		if strings.Contains(page, "/reference/") && strings.Contains(page, "-cli") || strings.Contains(page, "/adr/") {
			continue
		}
		text := strings.ReplaceAll(read(t, page), "\\\n", " ")
		for _, code := range inCode.FindAllString(text, -1) {
			for _, line := range called.FindAllString(code, -1) {
				found += checkCommand(t, known, page, line)
			}
		}
	}
	require.Greater(t, found, 100)
	for _, file := range examples(t, "ci/*.yaml") {
		text, found := strings.ReplaceAll(read(t, file), "\\\n", " "), 0
		require.NoError(t, yaml.Unmarshal([]byte(text), &map[string]any{}), file)
		for _, line := range called.FindAllString(text, -1) {
			found += checkCommand(t, known, file, line)
		}
		for _, words := range ofInputs.FindAllString(text, -1) {
			found += checkCommand(t, known, file, "pipeops-runner "+words)
		}
		assert.GreaterOrEqual(t, found, 2, "%s deploys and rolls back", file)
	}
}

// checkCommand returns 1 if a line runs one of our commands.
func checkCommand(t *testing.T, known map[string]string, page, line string) int {
	t.Helper()
	line, _, _ = strings.Cut(line, " -- ")
	words := strings.Fields(line)
	path := words[0]
	sections := known[path]
	rest := words[1:]
	for len(rest) > 0 && word.MatchString(rest[0]) && known[path+" "+rest[0]] != "" {
		path += " " + rest[0]
		sections += known[path]
		rest = rest[1:]
	}
	if len(rest) > 0 && word.MatchString(rest[0]) && hasCommands(known, path) && !slices.Contains(others, rest[0]) {
		assert.Fail(t, "no such command", "%s: %s", page, line)
	}
	if path == words[0] {
		return 0
	}
	for _, w := range rest {
		if flag := option.FindStringSubmatch(w); flag != nil && flag[1] != "--help" && flag[1] != "--version" {
			assert.Regexp(t, `(?m)^ +(-[a-zA-Z], )?`+flag[1]+`\b`, sections, "%s: %s: %s has no such flag", page, line, path)
		}
	}
	return 1
}

// hasCommands reports whether a command has others below it.
func hasCommands(known map[string]string, path string) bool {
	for command := range known {
		if strings.HasPrefix(command, path+" ") {
			return true
		}
	}
	return false
}
