// Command reference writes the documents, and parts of documents, that follow from code: the tables
// of calls, rights and commands in docs, the schema and the page of events, the OpenAPI documents
// of the Runner API and for Runners, the agent's configuration, and the README of each chart.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/pipeops/pipeops-vm-agent/agent/config"
	runners "github.com/pipeops/pipeops-vm-agent/runnerapi/announce/server"
	runnerapi "github.com/pipeops/pipeops-vm-agent/runnerapi/server"
)

func main() {
	root := flag.String("root", ".", "folder of the repository")
	flag.Parse()
	if err := run(*root); err != nil {
		fmt.Fprintln(os.Stderr, "reference:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	files, err := render(root)
	if err != nil {
		return err
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(root, name), content, 0o644); err != nil { //nolint:gosec // documents
			return err
		}
	}
	return nil
}

// render returns the files as they should be, by their path from the root.
func render(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, chart := range []string{"pipeops-agent", "pipeops-controlplane"} {
		dir := filepath.Join("deployments", "helm", chart)
		text, err := readme(filepath.Join(root, dir))
		if err != nil {
			return nil, err
		}
		files[filepath.Join(dir, "README.md")] = text
	}
	for name, tables := range map[string]map[string]string{
		"docs/reference/runner-api.md": {"calls": calls(), "upkeep": upkeep()},
		"docs/reference/policy.md":     {"commands": policyCommands()},
		"docs/reference/delivery.md":   {"arguments of a queue": queueArguments()},
	} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		for mark, table := range tables {
			if text, err = put(text, mark, table); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		files[name] = text
	}
	files["docs/reference/configuration.md"] = configuration()
	files["deployments/config.yaml"] = config.Example()
	doc, order, err := asyncAPI(filepath.Join(root, "runnerapi", "announce"))
	if err != nil {
		return nil, err
	}
	files["docs/reference/events.md"] = eventsReference(doc, order)
	document, err := encodedAsyncAPI(doc)
	if err == nil {
		err = checkCompatible(root, document)
	}
	if err != nil {
		return nil, err
	}
	files["docs/asyncapi.json"] = document
	if files["docs/openapi.json"], err = runnerapi.OpenAPI("v1"); err != nil {
		return nil, err
	}
	files["docs/openapi-runners.json"], err = runners.OpenAPI("v1")
	return files, err
}

// put puts a table between its marks.
func put(doc []byte, name, table string) ([]byte, error) {
	begin, end := fmt.Appendf(nil, "<!-- %s: go generate ./docs -->\n", name), []byte("<!-- end -->\n")
	before, rest, begins := bytes.Cut(doc, begin)
	_, after, ends := bytes.Cut(rest, end)
	if !begins || !ends {
		return nil, fmt.Errorf("there is no %q with its end", begin)
	}
	return bytes.Join([][]byte{before, begin, []byte(table), end, after}, nil), nil
}
