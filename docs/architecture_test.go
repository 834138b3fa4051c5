package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The most methods of a type, so that a reader can keep a type in mind.
const (
	mostMethods     = 30
	mostMethodsTest = 40 // of a type that only tests use
)

// large is a type above the limit, with its number of methods when it was listed.
type large struct {
	methods int
	reason  string
}

// largeTypes may only shrink: take out a type once it is within the limit.
var largeTypes = map[string]large{
	"internal/controlplane.plane (tests)": {49, "the control plane as its own tests use it"},
	"test/broker.Broker (tests)":          {42, "one RabbitMQ, with a method for each failure"},
	"test/chaos.chaos (tests)":            {65, "one run, with a method for each action"},
	"test/harness.System (tests)":         {74, "the whole system as end-to-end tests use it"},
}

// isTestCode reports whether only tests use a file, by its path from the root.
func isTestCode(file string) bool {
	return strings.HasSuffix(file, "_test.go") || strings.HasPrefix(file, "test/") || strings.Contains(file, "/runnertest/")
}

// methodsOf adds the methods that a file declares to those of their types.
func methodsOf(file *ast.File, add func(typeName string, methods int)) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				add(receiverType(d.Recv.List[0].Type), 1)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if s, ok := spec.(*ast.TypeSpec); ok {
					if i, ok := s.Type.(*ast.InterfaceType); ok {
						add(s.Name.Name, i.Methods.NumFields())
					}
				}
			}
		}
	}
}

// receiverType returns the name of a receiver's type, without its pointer and type parameters.
func receiverType(expr ast.Expr) string {
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

// allMethods counts the methods of every type of the repository: DIR.TYPE, or DIR.TYPE (tests).
func allMethods(t *testing.T) map[string]int {
	t.Helper()
	counts := map[string]int{}
	require.NoError(t, filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != ".." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "dist" || entry.Name() == "bin"):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go":
			return nil
		}
		file := strings.TrimPrefix(filepath.ToSlash(path), "../")
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		methodsOf(parsed, func(typeName string, methods int) {
			name := filepath.ToSlash(filepath.Dir(file)) + "." + typeName
			if isTestCode(file) {
				name += " (tests)"
			}
			counts[name] += methods
		})
		return nil
	}))
	require.Greater(t, len(counts), 1000)
	return counts
}

func TestTypes_MethodLimit(t *testing.T) {
	counts := allMethods(t)
	for name, methods := range counts {
		limit := limitOf(name)
		listed, isListed := largeTypes[name]
		switch {
		case !isListed:
			assert.LessOrEqual(t, methods, limit, "%s has too many methods; make a concern of its own a type of its own", name)
		case methods <= limit:
			t.Errorf("%s has %d methods, which is within the limit; take it out of largeTypes", name, methods)
		default:
			assert.LessOrEqual(t, methods, listed.methods, "%s has grown, although it is above the limit", name)
		}
	}
	for name, listed := range largeTypes {
		assert.Contains(t, counts, name, "a type of largeTypes that is gone; take it out")
		assert.NotEmpty(t, listed.reason, name)
	}
}

func limitOf(typeName string) int {
	if strings.HasSuffix(typeName, " (tests)") {
		return mostMethodsTest
	}
	return mostMethods
}

// TestMethodsAreCounted keeps the law from passing because it counts nothing.
func TestMethodsAreCounted(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "x.go", `package x
type i interface { a(); b() }
type plain struct{}
func (plain) a() {}
func (*plain) b() {}
type one[T any] struct{}
func (*one[T]) a() {}
type two[K, V any] struct{}
func (two[K, V]) a() {}
func none() {}
`, parser.SkipObjectResolution)
	require.NoError(t, err)
	counts := map[string]int{}
	methodsOf(file, func(typeName string, methods int) { counts[typeName] += methods })
	assert.Equal(t, map[string]int{"i": 2, "plain": 2, "one": 1, "two": 1}, counts)
}
