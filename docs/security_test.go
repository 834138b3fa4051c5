package docs_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	securityDoc = "concepts/security.md"
	// What is claimed stands between these headings, in tables alone.
	claimsBegin, claimsEnd = "\n## What stops them\n", "\n## What does not\n"
	// testColumn is the head of the last column of such a table.
	testColumn = "test"
)

// namedTest is a test as the document names it, from the repository's root.
var namedTest = regexp.MustCompile(`^([a-z0-9][a-z0-9/]*)/((?:Test|Fuzz)[A-Za-z0-9_]+)$`)

// TestSecurityPage_ClaimsHaveTests fails if a claim names no test, or one that does not exist.
// People judge whether the test shows the claim.
func TestSecurityPage_ClaimsHaveTests(t *testing.T) {
	text, err := os.ReadFile(securityDoc)
	require.NoError(t, err)
	rows, err := claims(string(text))
	require.NoError(t, err)
	require.NotEmpty(t, rows)
	there := map[string]map[string]bool{} // tests by folder
	for _, r := range rows {
		for _, name := range r.tests {
			parts := namedTest.FindStringSubmatch(name)
			if !assert.NotNil(t, parts, "%s: %q is not of the form folder/TestName", r.claim, name) {
				continue
			}
			if there[parts[1]] == nil {
				there[parts[1]] = testsOf(t, parts[1])
			}
			assert.True(t, there[parts[1]][parts[2]], "%s: there is no test %s in %s", r.claim, parts[2], parts[1])
		}
	}
}

type claim struct {
	claim string
	tests []string
}

// claims reads the rows of the tables that claim something.
func claims(text string) ([]claim, error) {
	_, text, found := strings.Cut(text, claimsBegin)
	text, _, ended := strings.Cut(text, claimsEnd)
	if !found || !ended {
		return nil, fmt.Errorf("%s lacks %q or %q", securityDoc, claimsBegin, claimsEnd)
	}
	var out []claim
	row := 0 // of the table: its head, the line below it, and then what is claimed
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			row = 0
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		last := strings.TrimSpace(cells[len(cells)-1])
		switch row++; {
		case row == 1 && last != testColumn:
			return nil, fmt.Errorf("the last column of %q is not %q", line, testColumn)
		case row > 2:
			c := claim{claim: strings.TrimSpace(cells[0])}
			for i, part := range strings.Split(last, "`") {
				if i%2 == 1 {
					c.tests = append(c.tests, part)
				}
			}
			if len(c.tests) == 0 {
				return nil, fmt.Errorf("%q has no test", line)
			}
			out = append(out, c)
		}
	}
	return out, nil
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
