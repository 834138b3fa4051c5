package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// inTheCode is a limit's line: its first cells, and in the last a file and what stands in it.
var inTheCode = regexp.MustCompile("(?m)^\\| (.*) \\| `([a-z0-9/_]+\\.go)`: `([^|]+)` \\|$")

// TestLimitsPage_MatchesCode looks up each limit of limits.md where it is said to be. The
// limitsIn of the code have to stand in the line for people.
func TestLimitsPage_MatchesCode(t *testing.T) {
	found := inTheCode.FindAllStringSubmatch(read(t, "reference/limits.md"), -1)
	require.Greater(t, len(found), 100)
	for _, f := range found {
		code := plain(codeOf(t, filepath.Join("..", f[2])))
		for line := range strings.SplitSeq(f[3], "`, `") {
			assert.True(t, strings.Contains(code, plain(line)), "%s has no %q", f[2], line)
			for _, figure := range limitsIn(line) {
				assert.Regexp(t, `(^|[^\d ]|[^\d] )`+regexp.QuoteMeta(figure)+`($|\D)`, f[1], "limits.md about %s: %s", f[2], line)
			}
		}
	}
}

var (
	// figure is a number in Go, with what makes a size or a duration of it.
	figure = regexp.MustCompile(`\b(\d[\d_]*)(?: ?<< ?([123]0)| ?\* ?time\.(Millisecond|Second|Minute|Hour)\b)?|\b(time\.(?:Second|Minute|Hour))\b`)
	units  = map[string]string{
		"10": " KiB", "20": " MiB", "30": " GiB",
		"Millisecond": " ms", "Second": " s", "Minute": " min", "Hour": " h",
	}
)

// limitsIn returns the figures of an expression in Go as limits.md writes them.
func limitsIn(code string) (all []string) {
	for _, m := range figure.FindAllStringSubmatch(code, -1) {
		switch unit := strings.TrimPrefix(m[4], "time."); {
		case unit != "":
			all = append(all, "1"+units[unit])
		default:
			all = append(all, strings.ReplaceAll(m[1], "_", " ")+units[m[2]]+units[m[3]])
		}
	}
	return all
}

func TestFiguresAreWrittenForPeople(t *testing.T) {
	for code, want := range map[string][]string{
		"maxSmallBody = 64 << 10":                   {"64 KiB"},
		"maxValues = 100_000":                       {"100 000"},
		"maxFailures, failuresPerSecond = 1000, 10": {"1000", "10"},
		"cmp.Or(l.CallsDrain, 5*time.Second)":       {"5 s"},
		"WriteTimeout: time.Minute":                 {"1 min"},
		"Connections: c.Limits.Connections":         nil,
	} {
		assert.Equal(t, want, limitsIn(code), code)
	}
}

// codeOf returns a Go file without its comments.
func codeOf(t *testing.T, path string) string {
	t.Helper()
	text := []byte(read(t, path))
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, text, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	for _, group := range parsed.Comments {
		from, to := files.Position(group.Pos()).Offset, files.Position(group.End()).Offset
		copy(text[from:to], strings.Repeat(" ", to-from))
	}
	return string(text)
}

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

func TestWhatListensIsFound(t *testing.T) {
	for body, want := range map[string]bool{
		`net.Listen("tcp", "")`: true, `new(net.ListenConfig).Listen(nil, "", "")`: true, `net.ListenTCP("tcp", nil)`: true,
		`(&http.Server{}).ListenAndServe()`: true, `tls.Listen("tcp", "", nil)`: true, `limit.Listen(ln, c)`: false,
		`// net.Listen()`: false, `say("net.Listen(")`: false,
	} {
		file := filepath.Join(t.TempDir(), "a.go")
		require.NoError(t, os.WriteFile(file, []byte("package a\n\nfunc f() {\n\t"+body+"\n}\n"), 0o600))
		assert.Equal(t, want, listens(t, file), body)
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
