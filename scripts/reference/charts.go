package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

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

// readme returns the README of a chart. It is made here because helm-docs is not available as a
// Go module.
func readme(dir string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(dir, "Chart.yaml"))
	if err != nil {
		return nil, err
	}
	var about struct {
		Name, Description string
		Kubernetes        string `yaml:"kubeVersion"`
	}
	if err := yaml.Unmarshal(text, &about); err != nil {
		return nil, err
	}
	values, err := valuesOf(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	oldest := strings.TrimSuffix(strings.TrimPrefix(about.Kubernetes, ">="), ".0-0")
	var out bytes.Buffer
	fmt.Fprintf(&out, readmeHead, about.Name, about.Description, oldest)
	for _, v := range values {
		fmt.Fprintf(&out, "| `%s` | %s | %s |\n", v.path, v.standard, v.meaning)
	}
	return out.Bytes(), nil
}

func valuesOf(dir string) ([]value, error) {
	text, err := os.ReadFile(filepath.Join(dir, "values.yaml"))
	if err != nil {
		return nil, err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	return below("", document.Content[0])
}

// below returns the rows of a mapping. A mapping whose own values have no comment, such as
// resources, is one value.
func below(prefix string, mapping *yaml.Node) (rows []value, err error) {
	for i := 0; i < len(mapping.Content); i += 2 {
		key, node := mapping.Content[i], mapping.Content[i+1]
		path := prefix + key.Value
		meaning := comment(key.HeadComment)
		if meaning == "" {
			return nil, fmt.Errorf("%s has no comment in values.yaml", path)
		}
		if node.Kind == yaml.MappingNode && commented(node) {
			nested, err := below(path+".", node)
			if err != nil {
				return nil, err
			}
			rows = append(append(rows, value{path, "", meaning}), nested...)
			continue
		}
		var standard any
		if err := node.Decode(&standard); err != nil {
			return nil, err
		}
		text, err := json.Marshal(standard)
		if err != nil {
			return nil, err
		}
		rows = append(rows, value{path, "`" + string(text) + "`", meaning})
	}
	return rows, nil
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
