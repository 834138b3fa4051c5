package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	attacksDoc = "contributing/attacks.md"
	// What is claimed stands between these headings, in tables alone.
	claimsBegin, claimsEnd = "\n## Mitigations\n", "\n## Residual risks\n"
	// testColumn is the head of the last column of such a table.
	testColumn = "test"
)

var quoted = regexp.MustCompile("`([^`]+)`")

// namedTest is a test as the document names it, from the repository's root.
var namedTest = regexp.MustCompile(`^([a-z0-9][a-z0-9/]*)/((?:Test|Fuzz)[A-Za-z0-9_]+)$`)

// TestAttacksPage_ClaimsHaveTests fails if a claim names no test, or one that does not exist.
// People judge whether the test shows the claim.
func TestAttacksPage_ClaimsHaveTests(t *testing.T) {
	_, text, found := strings.Cut(read(t, attacksDoc), claimsBegin)
	text, _, ended := strings.Cut(text, claimsEnd)
	require.True(t, found && ended, "%s lacks %q or %q", attacksDoc, claimsBegin, claimsEnd)
	there := map[string]map[string]bool{} // tests by folder
	row, claims := 0, 0                   // row of a table: its head, the line below it, and then what is claimed
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if row++; !strings.HasPrefix(line, "|") {
			row = 0
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		last := strings.TrimSpace(cells[len(cells)-1])
		if row == 1 {
			assert.Equal(t, testColumn, last, "the last column of %s", line)
		}
		if row < 3 {
			continue
		}
		claims++
		names := quoted.FindAllStringSubmatch(last, -1)
		assert.NotEmpty(t, names, "%s: names no test", line)
		for _, name := range names {
			parts := namedTest.FindStringSubmatch(name[1])
			if !assert.NotNil(t, parts, "%s: %q is not of the form folder/TestName", line, name[1]) {
				continue
			}
			if there[parts[1]] == nil {
				there[parts[1]] = testsOf(t, parts[1])
			}
			assert.True(t, there[parts[1]][parts[2]], "%s: there is no test %s in %s", line, parts[2], parts[1])
		}
	}
	assert.NotZero(t, claims)
}

// testsOf are the names of the tests in a folder of the repository, for any system.
func testsOf(t *testing.T, folder string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", filepath.FromSlash(folder), "*_test.go"))
	require.NoError(t, err)
	out := map[string]bool{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range parsed.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Recv == nil {
				out[f.Name.Name] = true
			}
		}
	}
	return out
}
