package problem_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem"
)

// Reads the sources: a text that is given to WithField, or is the Field of a FieldError, is sent
// as it is written. A sentence would be encoded.
func TestWithField_LiteralsInForm(t *testing.T) {
	form, found := fieldForm(problem.Error{}), 0
	for _, dir := range []string{"agent", "cmd", "internal", "runnerapi"} {
		err := filepath.WalkDir("../../"+dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			ast.Inspect(file, func(n ast.Node) bool {
				for _, text := range fieldTexts(n) {
					found++
					assert.Regexp(t, form, text, path)
				}
				return true
			})
			return nil
		})
		require.NoError(t, err)
	}
	assert.Greater(t, found, 80)
}

// fieldTexts are the literals with which a node names a field. Those that begin a longer text end
// with a dot.
func fieldTexts(n ast.Node) (texts []string) {
	var of ast.Expr
	switch n := n.(type) {
	case *ast.CallExpr:
		if called, ok := n.Fun.(*ast.SelectorExpr); ok && called.Sel.Name == "WithField" && len(n.Args) == 1 {
			of = n.Args[0]
		}
	case *ast.CompositeLit:
		for _, e := range n.Elts {
			if pair, ok := e.(*ast.KeyValueExpr); ok && isFieldError(n.Type) && pair.Key.(*ast.Ident).Name == "Field" {
				of = pair.Value
			}
		}
	}
	if of == nil {
		return nil
	}
	ast.Inspect(of, func(n ast.Node) bool {
		if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil && text != "" {
				texts = append(texts, text)
			}
		}
		return true
	})
	return texts
}

func isFieldError(expr ast.Expr) bool {
	switch of := expr.(type) {
	case *ast.Ident:
		return of.Name == "FieldError"
	case *ast.SelectorExpr:
		return of.Sel.Name == "FieldError"
	}
	return false
}
