package main

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// shortReasons returns the reasons with which the repository's Go files skip a test under -short:
// the texts of calls of Skip that stand in an if statement that asks testing.Short.
func shortReasons(root string) (reasons []string, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != root && strings.HasPrefix(entry.Name(), ".") {
			return filepath.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, ".go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(text, []byte("testing.Short()")) {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			return nil //nolint:nilerr // compiling it fails, and says why
		}
		reasons = append(reasons, shortReasonsIn(file)...)
		return nil
	})
	slices.Sort(reasons)
	return slices.Compact(reasons), err
}

func shortReasonsIn(file *ast.File) (reasons []string) {
	for node := range ast.Preorder(file) {
		branch, ok := node.(*ast.IfStmt)
		if !ok || !calls(branch.Cond, "Short") {
			continue
		}
		for node := range ast.Preorder(branch.Body) {
			if reason, ok := skipReason(node); ok {
				reasons = append(reasons, reason)
			}
		}
	}
	return reasons
}

// calls reports whether an expression calls testing's function of that name.
func calls(condition ast.Expr, name string) bool {
	for node := range ast.Preorder(condition) {
		if call, ok := node.(*ast.CallExpr); ok {
			if f, ok := call.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == name {
				if pkg, ok := f.X.(*ast.Ident); ok && pkg.Name == "testing" {
					return true
				}
			}
		}
	}
	return false
}

// skipReason returns the text of t.Skip("...").
func skipReason(node ast.Node) (string, bool) {
	call, ok := node.(*ast.CallExpr)
	if !ok || len(call.Args) != 1 {
		return "", false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != "Skip" {
		return "", false
	}
	text, ok := call.Args[0].(*ast.BasicLit)
	if !ok {
		return "", false
	}
	reason, err := strconv.Unquote(text.Value)
	return reason, err == nil
}
