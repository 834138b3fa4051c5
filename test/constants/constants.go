// Package constants lists the constants of a Go type from the type's source, so that a test finds
// those that its own list lacks.
package constants

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// OfType returns the values of all string constants of that type which a folder's package declares,
// in the order of its files. It fails the test when there is none.
func OfType(t testing.TB, dir, name string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var values []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, inFile(t, parsed, name)...)
	}
	if len(values) == 0 {
		t.Fatalf("%s declares no constant of type %s", dir, name)
	}
	return values
}

func inFile(t testing.TB, file *ast.File, name string) (values []string) {
	t.Helper()
	for _, declaration := range file.Decls {
		group, ok := declaration.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			constant := spec.(*ast.ValueSpec)
			if of, ok := constant.Type.(*ast.Ident); ok && of.Name == name {
				values = append(values, literals(t, constant)...)
			}
		}
	}
	return values
}

func literals(t testing.TB, constant *ast.ValueSpec) (values []string) {
	t.Helper()
	for i, value := range constant.Values {
		literal, ok := value.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			t.Fatalf("%s is not a string literal", constant.Names[i].Name)
		}
		text, err := strconv.Unquote(literal.Value)
		if err != nil {
			t.Fatalf("%s: %v", constant.Names[i].Name, err)
		}
		values = append(values, text)
	}
	return values
}
