package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// mostMethods is the most methods of a type, so that a reader can keep a type in mind.
const mostMethods = 30

// TestTypes_MethodLimit counts the methods of the types of production code.
func TestTypes_MethodLimit(t *testing.T) {
	counts := map[string]int{}
	for _, root := range []string{"agent", "cmd", "deployments", "internal", "runnerapi", "scripts", "tunnel"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("..", root), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") ||
				strings.Contains(path, "/testdata/") || strings.Contains(path, "/runnertest/") {
				return err
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			ast.Inspect(parsed, func(n ast.Node) bool {
				switch d := n.(type) {
				case *ast.FuncDecl:
					if d.Recv != nil {
						receiver, _, _ := strings.Cut(strings.TrimPrefix(types.ExprString(d.Recv.List[0].Type), "*"), "[")
						counts[filepath.Dir(path)+"."+receiver]++
					}
				case *ast.TypeSpec:
					if i, is := d.Type.(*ast.InterfaceType); is {
						counts[filepath.Dir(path)+"."+d.Name.Name] += i.Methods.NumFields()
					}
				}
				return true
			})
			return nil
		}))
	}
	require.Greater(t, len(counts), 500)
	for name, methods := range counts {
		assert.LessOrEqual(t, methods, mostMethods, "%s has too many methods; make a concern of its own a separate type", name)
	}
}
