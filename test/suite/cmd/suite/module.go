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
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if len(fields) < 2 {
			continue
		}
		m.add(fields[0], fields[1], append(fields[2:], "")[0])
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

// below returns the packages with tests in a folder of the repository.
func (m *module) below(folder string) (found []string) {
	for _, pkg := range m.tested() {
		if dir := m.dirs[pkg]; dir == folder || strings.HasPrefix(dir, folder+"/") {
			found = append(found, pkg)
		}
	}
	return found
}

// folders returns those of all packages.
func (m *module) folders() map[string]bool {
	all := map[string]bool{}
	for _, dir := range m.dirs {
		all[dir] = true
	}
	return all
}

// closure returns the folders of packages, their tests, and all that they import of this module.
func (m *module) closure(pkgs ...string) map[string]bool {
	dirs := map[string]bool{}
	for _, pkg := range pkgs {
		dirs[m.dirs[pkg]] = true
		for _, dep := range m.deps[pkg] {
			dirs[m.dirs[dep]] = true
		}
	}
	return dirs
}

// match returns the import paths that a pattern stands for, as `go list` reads it.
func (m *module) match(ctx context.Context, pattern string) ([]string, error) {
	if !strings.HasPrefix(pattern, ".") && !strings.HasPrefix(pattern, modulePath) {
		pattern = "./" + pattern
	}
	out, err := exec.CommandContext(ctx, "go", "list", pattern).Output()
	if err != nil {
		return nil, fmt.Errorf("no package %q: try PKG=./internal/app", pattern)
	}
	paths := slices.DeleteFunc(strings.Fields(string(out)), func(p string) bool { return !m.test[p] })
	if len(paths) == 0 {
		return nil, fmt.Errorf("%s has no tests", pattern)
	}
	return paths, nil
}

// short returns an import path without the module's.
func short(pkg string) string { return strings.TrimPrefix(strings.TrimPrefix(pkg, modulePath), "/") }

func intersect(a, b []string) (both []string) {
	for _, s := range a {
		if slices.Contains(b, s) {
			both = append(both, s)
		}
	}
	return both
}
