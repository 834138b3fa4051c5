package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// furtherJobs returns a job for each of these packages that runs the tests which `make test` leaves
// out, and no others. A package without such tests has no job.
func furtherJobs(m *module, pkgs ...string) (jobs []job) {
	for _, pkg := range pkgs {
		if names := m.releasing(pkg); len(names) > 0 {
			jobs = append(jobs, job{
				name: short(pkg), env: release, packages: []string{pkg},
				args: []string{"-run", "^(" + strings.Join(names, "|") + ")$"},
			})
		}
	}
	return jobs
}

// releasing returns the names of a package's tests that call suite.Release, sorted.
func (m *module) releasing(pkg string) (names []string) {
	files, _ := filepath.Glob(filepath.Join(m.root, m.dirs[pkg], "*_test.go"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !bytes.Contains(text, []byte("suite.Release(")) {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			continue // compiling it fails, and says why
		}
		for _, declared := range parsed.Decls {
			if f, ok := declared.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Test") && asksForRelease(f) {
				names = append(names, f.Name.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// asksForRelease reports whether a function calls suite.Release, or asks suite.IsRelease.
func asksForRelease(f *ast.FuncDecl) bool {
	for node := range ast.Preorder(f) {
		call, ok := node.(*ast.SelectorExpr)
		if !ok || call.Sel.Name != "Release" && call.Sel.Name != "IsRelease" {
			continue
		}
		if pkg, ok := call.X.(*ast.Ident); ok && pkg.Name == "suite" {
			return true
		}
	}
	return false
}
