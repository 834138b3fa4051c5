// Command ci writes the component for GitLab CI, whose jobs do not have the files beside it: run.sh
// becomes a part of it. The action for GitHub Actions in this folder calls run.sh itself.
package main

import (
	_ "embed"
	"fmt"
	"os"
	"strings"
)

//go:generate go run .

//go:embed gitlab.yml
var template string

//go:embed run.sh
var script string

// component is where GitLab looks for a component: templates/NAME/template.yml.
const component = "templates/deploy/template.yml"

func main() {
	if err := os.WriteFile(component, []byte(assemble()), 0o644); err != nil { //nolint:gosec // a file of the repository
		fmt.Fprintln(os.Stderr, "ci:", err)
		os.Exit(1)
	}
}

// assemble returns the component.
func assemble() string {
	var indented strings.Builder
	for line := range strings.Lines(script) {
		if strings.TrimSpace(line) != "" {
			indented.WriteString("      ")
		}
		indented.WriteString(line)
	}
	return strings.Replace(template, "RUN\n", indented.String(), 1)
}
