package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLimitsPage_HasAllListeners finds what listens in the shipped code.
func TestLimitsPage_HasAllListeners(t *testing.T) {
	doc := read(t, "reference/limits.md")
	listeners := 0
	for _, root := range []string{"agent", "cmd", "internal", "runnerapi", "tunnel"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("..", root), func(path string, _ fs.DirEntry, err error) error {
			test := strings.HasSuffix(path, "_test.go") || strings.Contains(path, "runnertest") || strings.Contains(path, "tunneltest")
			if err != nil || test || filepath.Ext(path) != ".go" || !listens(t, path) {
				return err
			}
			listeners++
			name := filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))
			assert.True(t, strings.Contains(doc, "`"+name+"`"), "%s listens; say in docs/reference/limits.md what it takes of a peer", name)
			return nil
		}))
	}
	assert.GreaterOrEqual(t, listeners, 6)
}

// listening are the functions and methods of the standard library that open a port or a socket.
var listening = []string{
	"Listen", "ListenPacket", "ListenTCP", "ListenUDP", "ListenUnix", "ListenIP", "ListenMulticastUDP", "ListenUnixgram",
	"ListenAndServe", "ListenAndServeTLS",
}

// listens reports whether a Go file calls one of them, of package net, net/http or crypto/tls, of
// net.ListenConfig, or of a server of net/http.
func listens(t *testing.T, path string) bool {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	found := false
	ast.Inspect(parsed, func(n ast.Node) bool {
		selector, is := n.(*ast.SelectorExpr)
		if !is {
			return true
		}
		of, isName := selector.X.(*ast.Ident)
		ofPackage := isName && slices.Contains([]string{"net", "http", "tls"}, of.Name)
		found = found || selector.Sel.Name == "ListenConfig" || strings.HasPrefix(selector.Sel.Name, "ListenAndServe") ||
			ofPackage && slices.Contains(listening, selector.Sel.Name)
		return true
	})
	return found
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}
