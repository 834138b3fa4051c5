package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const modulePath = "github.com/pipeops/pipeops-vm-agent"

// provider is the folder of the provider for Terraform, which is a module of its own.
const provider = "terraform"

// module is what `go list` knows of the repository's packages.
type module struct {
	deps   map[string][]string // of a package and its tests, in this module: import paths
	tested []string            // packages that have tests, the slowest first
}

// loadModule lists the packages below the current directory, which is the repository's root.
func loadModule(ctx context.Context) (*module, error) {
	m := &module{deps: map[string][]string{}}
	for _, dir := range []string{".", provider} {
		list := exec.CommandContext(ctx, "go", "list", "-e", "-trimpath", "-test", "-f", `{{.ImportPath}}{{"\t"}}{{join .Deps ","}}`, "./...")
		list.Dir, list.Stderr = dir, os.Stderr
		out, err := list.Output()
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		m.add(string(out))
	}
	// What needs most takes longest, more or less. It starts first, so that it is not alone at the
	// end.
	slices.SortStableFunc(m.tested, func(a, b string) int { return cmp.Compare(len(m.deps[b]), len(m.deps[a])) })
	return m, nil
}

// add adds what `go list` printed.
func (m *module) add(listed string) {
	for line := range strings.Lines(listed) {
		path, deps, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if strings.Contains(path, " ") {
			continue // a variant of a package for one test
		}
		pkg, isTest := strings.CutSuffix(path, ".test") // so `go list -test` names a package's test
		if isTest {
			m.tested = append(m.tested, pkg)
		}
		m.deps[pkg] = append(m.deps[pkg], pkg)
		for dep := range strings.SplitSeq(deps, ",") {
			if dep, _, _ = strings.Cut(dep, " "); strings.HasPrefix(dep, modulePath) { // "path [variant]"
				m.deps[pkg] = append(m.deps[pkg], dep)
			}
		}
	}
}

// short returns an import path without the module's: the package's folder.
func short(pkg string) string { return strings.TrimPrefix(strings.TrimPrefix(pkg, modulePath), "/") }

// isBelow reports whether a path is one of the folders or in one.
func isBelow(path string, folders ...string) bool {
	return slices.ContainsFunc(folders, func(f string) bool { return path == f || strings.HasPrefix(path, f+"/") })
}

// below returns the packages with tests in folders of the repository.
func (m *module) below(folders ...string) []string {
	return slices.DeleteFunc(slices.Clone(m.tested), func(pkg string) bool { return !isBelow(short(pkg), folders...) })
}

// kind is what a package's tests run on.
type kind int

const (
	own      kind = iota // our code, in the tests' own process
	programs             // command lines, which are child processes
	clusters             // a cluster, a machine, the whole system, or a child process that renders
)

var clusterParts = []string{"test/kubetest", "test/cluster", "test/machine", "test/harness", "test/buildkit", "test/rendertest"}

func (m *module) kind(pkg string) kind {
	switch {
	case isBelow(short(pkg), "cmd"):
		return programs
	case slices.ContainsFunc(m.deps[pkg], func(dep string) bool { return isBelow(short(dep), clusterParts...) }):
		return clusters
	}
	return own
}

// of returns the packages with tests of these kinds, without the provider's.
func (m *module) of(kinds ...kind) []string {
	return slices.DeleteFunc(slices.Clone(m.tested), func(pkg string) bool { return isBelow(short(pkg), provider) || !slices.Contains(kinds, m.kind(pkg)) })
}

// ofProduct leaves out the packages of tests, scripts and documents: what they test runs in other
// processes.
func ofProduct(pkgs []string) []string {
	return slices.DeleteFunc(pkgs, func(pkg string) bool { return isBelow(short(pkg), "test", "scripts", "docs") })
}

var (
	longTest = regexp.MustCompile(`\bsuite\.(Release|IsRelease)\(`)
	anyTest  = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
)

// functions returns the tests and fuzz targets of a package, with their texts.
func functions(pkg string) map[string]string {
	all := map[string]string{}
	files, _ := filepath.Glob(filepath.Join(short(pkg), "*_test.go"))
	for _, file := range files {
		text, _ := os.ReadFile(file) // compiling it fails otherwise, and says why
		end := len(text)
		for _, at := range slices.Backward(anyTest.FindAllSubmatchIndex(text, -1)) {
			all[string(text[at[2]:at[3]])] = string(text[at[0]:end])
			end = at[0]
		}
	}
	return all
}

// longTests returns the tests of a package that ask for the release suite, sorted.
func longTests(pkg string) []string {
	all := functions(pkg)
	maps.DeleteFunc(all, func(_, text string) bool { return !longTest.MatchString(text) })
	return slices.Sorted(maps.Keys(all))
}
