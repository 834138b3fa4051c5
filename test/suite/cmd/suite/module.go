package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const modulePath = "github.com/pipeops/pipeops-vm-agent"

// module is what `go list` knows of the repository's packages.
type module struct {
	root string
	dirs map[string]string   // by import path, relative to root
	deps map[string][]string // of a package and its tests, in this module: import paths
	test map[string]bool     // packages that have tests
}

// loadModule lists the packages below the current directory, which is the repository's root.
func loadModule(ctx context.Context) (*module, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	const format = `{{.ImportPath}}{{"\t"}}{{.Dir}}{{"\t"}}{{join .Deps ","}}`
	list := exec.CommandContext(ctx, "go", "list", "-e", "-trimpath", "-test", "-f", format, "./...")
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	m := &module{root: root, dirs: map[string]string{}, deps: map[string][]string{}, test: map[string]bool{}}
	for line := range strings.Lines(string(out)) {
		if fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); len(fields) == 3 {
			m.add(fields[0], fields[1], fields[2])
		}
	}
	return m, nil
}

// add takes one package, or its test: `go list -test` names that with the suffix ".test".
func (m *module) add(path, dir, deps string) {
	if strings.Contains(path, " ") {
		return // a variant of a package for one test
	}
	pkg, isTest := strings.CutSuffix(path, ".test")
	if isTest {
		m.test[pkg] = true
	} else if rel, err := filepath.Rel(m.root, dir); err == nil {
		m.dirs[path] = filepath.ToSlash(rel)
	}
	for dep := range strings.SplitSeq(deps, ",") {
		dep, _, _ = strings.Cut(dep, " ") // "path [variant]"
		if strings.HasPrefix(dep, modulePath) {
			m.deps[pkg] = append(m.deps[pkg], dep)
		}
	}
}

// tested returns the packages that have tests, sorted.
func (m *module) tested() []string { return slices.Sorted(maps.Keys(m.test)) }

// below returns the packages with tests in folders of the repository.
func (m *module) below(folders ...string) (found []string) {
	for _, folder := range folders {
		for _, pkg := range m.tested() {
			if dir := m.dirs[pkg]; dir == folder || strings.HasPrefix(dir, folder+"/") {
				found = append(found, pkg)
			}
		}
	}
	return found
}

// short returns an import path without the module's.
func short(pkg string) string { return strings.TrimPrefix(strings.TrimPrefix(pkg, modulePath), "/") }
