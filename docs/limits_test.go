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

// inTheCode is the last cell of a limit's line: a file, and what stands in it.
var inTheCode = regexp.MustCompile("\\| `([a-z0-9/_]+\\.go)`: `([^`]+)` \\|\n")

// TestTheLimitsAreThoseOfTheCode looks up each limit of limits.md where it is said to be.
func TestTheLimitsAreThoseOfTheCode(t *testing.T) {
	found := inTheCode.FindAllStringSubmatch(read(t, "limits.md"), -1)
	require.Greater(t, len(found), 30)
	for _, f := range found {
		assert.True(t, strings.Contains(plain(read(t, filepath.Join("..", f[1]))), plain(f[2])), "%s has no %q", f[1], f[2])
	}
}

// TestEveryListenerIsListed finds what listens in the shipped code.
func TestEveryListenerIsListed(t *testing.T) {
	listens := regexp.MustCompile(`ListenConfig|net\.Listen\(|ListenAndServe`)
	doc := read(t, "limits.md")
	for _, root := range []string{"agent", "cmd", "internal", "runnerapi", "tunnel"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("..", root), func(path string, _ fs.DirEntry, err error) error {
			test := strings.HasSuffix(path, "_test.go") || strings.Contains(path, "runnerapitest") || strings.Contains(path, "tunneltest")
			if err != nil || test || filepath.Ext(path) != ".go" || !listens.MatchString(read(t, path)) {
				return err
			}
			name := filepath.ToSlash(strings.TrimPrefix(path, ".."+string(filepath.Separator)))
			assert.True(t, strings.Contains(doc, "`"+name+"`"), "%s listens; say in docs/limits.md what it takes of a peer", name)
			return nil
		}))
	}
}

// plain is a text without what gofmt makes of its spaces.
func plain(text string) string { return strings.Join(strings.Fields(text), " ") }

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}
