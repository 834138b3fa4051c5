package docs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// listens matches what opens a port or a socket in code of the standard library, outside of
// comments.
var listens = regexp.MustCompile(`(?m)^[^/]*(\b(net|http|tls)\.Listen[A-Za-z]*\(|\bnet\.ListenConfig\b|\)\.ListenAndServe)`)

// TestLimitsPage_HasAllListeners finds what listens in the shipped code.
func TestLimitsPage_HasAllListeners(t *testing.T) {
	doc := read(t, "reference/limits.md")
	listeners := 0
	for _, root := range []string{"agent", "cmd", "internal", "runnerapi", "tunnel"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("..", root), func(path string, _ fs.DirEntry, err error) error {
			test := strings.HasSuffix(path, "_test.go") || strings.Contains(path, "runnertest") || strings.Contains(path, "tunneltest")
			if err != nil || test || filepath.Ext(path) != ".go" || !listens.MatchString(read(t, path)) {
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

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}
