package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// testsOf returns the functions of a package's test files.
func testsOf(t *testing.T, m *module, pkg string) (found []*ast.FuncDecl) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(m.dirs[pkg], "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, declared := range parsed.Decls {
			if f, ok := declared.(*ast.FuncDecl); ok {
				found = append(found, f)
			}
		}
	}
	return found
}

// pattern is a job's -run.
func (j job) pattern() string {
	if i := slices.Index(j.args, "-run"); i >= 0 {
		return j.args[i+1]
	}
	return ""
}

// TestNamesInPatternsExist holds each name in a -run against the tests of its packages.
func TestNamesInPatternsExist(t *testing.T) {
	m := repository(t)
	for _, p := range parts {
		for _, j := range p.jobs(m) {
			pattern := strings.Trim(j.pattern(), "^$()")
			if pattern == "" {
				continue
			}
			var names []string
			for _, pkg := range j.packages {
				for _, f := range testsOf(t, m, pkg) {
					names = append(names, f.Name.Name)
				}
			}
			for name := range strings.SplitSeq(pattern, "|") {
				require.Contains(t, names, name, "part %s", p.name)
			}
		}
	}
}

// TestWhatAChangeLeavesOutAPartRuns finds the tests that call suite.Release, or ask
// suite.IsRelease: a part with the release's environment has to run each.
func TestWhatAChangeLeavesOutAPartRuns(t *testing.T) {
	m := repository(t)
	found := 0
	for _, pkg := range m.tested() {
		for _, f := range testsOf(t, m, pkg) {
			if asksForRelease(f) {
				found++
				require.True(t, isRunByAPart(t, m, pkg, f.Name.Name), "%s %s is run by no part", short(pkg), f.Name.Name)
			}
		}
	}
	require.NotZero(t, found)
}

// isRunByAPart reports whether a part runs a test with the release's environment. A helper counts
// as run where all tests of its package run.
func isRunByAPart(t *testing.T, m *module, pkg, name string) bool {
	t.Helper()
	for _, p := range parts {
		for _, j := range p.jobs(m) {
			if !slices.Contains(j.packages, pkg) || !slices.Contains(j.env, release[0]) {
				continue
			}
			if j.pattern() == "" || regexp.MustCompile(j.pattern()).MatchString(name) {
				return true
			}
		}
	}
	return false
}
