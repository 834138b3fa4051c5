package deployments_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

const readmeHead = `# Chart %[1]s

<!-- Made from values.yaml: go generate ./deployments -->

%[2]s.

It needs Kubernetes %[3]s or newer.
[charts.md](https://github.com/pipeops/pipeops-vm-agent/blob/main/docs/reference/charts.md) has
commands and examples.

## Values

| value | default | meaning |
|---|---|---|
`

// value is a row of a chart's README.
type value struct{ path, standard, meaning string }

// TestChart_ReadmeUpToDate: the README of each chart is made from the comments in its values.yaml.
// It is our own generator because helm-docs is not served as a Go module.
func TestChart_ReadmeUpToDate(t *testing.T) {
	for _, chart := range []string{"pipeops-agent", "pipeops-controlplane"} {
		dir := filepath.Join("helm", chart)
		text, err := os.ReadFile(filepath.Join(dir, "Chart.yaml"))
		require.NoError(t, err)
		var about struct {
			Name, Description string
			Kubernetes        string `yaml:"kubeVersion"`
		}
		require.NoError(t, yaml.Unmarshal(text, &about))
		oldest := strings.TrimSuffix(strings.TrimPrefix(about.Kubernetes, ">="), ".0-0")
		out := bytes.NewBufferString(fmt.Sprintf(readmeHead, about.Name, about.Description, oldest))
		for _, v := range valuesOf(t, dir) {
			fmt.Fprintf(out, "| `%s` | %s | %s |\n", v.path, v.standard, v.meaning)
		}
		isUpToDate(t, filepath.Join(dir, "README.md"), out.Bytes())
	}
}

// TestChart_SchemaMatchesValues: what a schema allows is in values.yaml, and the other way round.
func TestChart_SchemaMatchesValues(t *testing.T) {
	for _, chart := range []string{"pipeops-agent", "pipeops-controlplane"} {
		dir := filepath.Join("helm", chart)
		text, err := os.ReadFile(filepath.Join(dir, "values.schema.json"))
		require.NoError(t, err)
		var schema map[string]any
		require.NoError(t, json.Unmarshal(text, &schema))
		values := map[string]any{}
		text, err = os.ReadFile(filepath.Join(dir, "values.yaml"))
		require.NoError(t, err)
		require.NoError(t, yaml.Unmarshal(text, &values))
		sameKeys(t, chart, schema, values)
	}
}

func sameKeys(t *testing.T, path string, schema map[string]any, values map[string]any) {
	t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	if len(values) == 0 || len(properties) == 0 || strings.HasSuffix(path, "Probe") {
		return // as in Kubernetes, or as in another file
	}
	assert.Equal(t, slices.Sorted(maps.Keys(properties)), slices.Sorted(maps.Keys(values)), path)
	for key, below := range properties {
		nested, _ := values[key].(map[string]any)
		if below, ok := below.(map[string]any); ok {
			sameKeys(t, path+"."+key, below, nested)
		}
	}
}

func valuesOf(t *testing.T, dir string) []value {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "values.yaml"))
	require.NoError(t, err)
	var document yaml.Node
	require.NoError(t, yaml.Unmarshal(text, &document))
	return below(t, "", document.Content[0])
}

// below returns the rows of a mapping. A mapping whose own values have no comment, such as
// resources, is one value.
func below(t *testing.T, prefix string, mapping *yaml.Node) (rows []value) {
	t.Helper()
	for i := 0; i < len(mapping.Content); i += 2 {
		key, node := mapping.Content[i], mapping.Content[i+1]
		path := prefix + key.Value
		meaning := comment(key.HeadComment)
		require.NotEmpty(t, meaning, "%s has no comment in values.yaml", path)
		if node.Kind == yaml.MappingNode && commented(node) {
			rows = append(append(rows, value{path, "", meaning}), below(t, path+".", node)...)
			continue
		}
		var standard any
		require.NoError(t, node.Decode(&standard))
		text, err := json.Marshal(standard)
		require.NoError(t, err)
		rows = append(rows, value{path, "`" + string(text) + "`", meaning})
	}
	return rows
}

func commented(mapping *yaml.Node) bool {
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].HeadComment != "" {
			return true
		}
	}
	return false
}

// comment is a value's comment in one line. What an empty line parts from it is of the file.
func comment(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	text = paragraphs[len(paragraphs)-1]
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(strings.TrimPrefix(line, "#"))
	}
	return strings.ReplaceAll(strings.Join(lines, " "), "|", `\|`)
}
