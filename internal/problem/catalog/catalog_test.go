package catalog_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/problem/catalog"
	"github.com/pipeops/pipeops-vm-agent/test/golden"
)

func TestCatalog_PageCommitted(t *testing.T) {
	golden.Check(t, "../../../"+catalog.Page, catalog.Markdown(), "go generate ./internal/problem/catalog")
}

func TestCatalog_EntriesComplete(t *testing.T) {
	names, last := map[string]bool{}, ""
	for _, area := range catalog.Areas() {
		for _, e := range area.Entries {
			assert.Regexp(t, "^"+area.Prefix+"[0-9]{3}$", e.Code)
			assert.Greater(t, e.Code, last, "codes are in order, and each is used once")
			assert.False(t, names[e.Name], "%s has the name of another entry", e.Code)
			assert.Regexp(t, `^([a-z0-9]+(_[a-z0-9]+)*|[A-Z][A-Za-z]+)$`, e.Name)
			assert.Regexp(t, `^[A-Za-z][^.]*[^.]$`, e.Title, e.Code)
			assert.Regexp(t, `[.]$`, e.Meaning, e.Code)
			assert.Regexp(t, `[.]$`, e.Fix, e.Code)
			page, _, _ := strings.Cut(e.Page, "#")
			assert.FileExists(t, "../../../"+page, e.Code)
			for sentence := range strings.SplitSeq(e.Meaning+" "+e.Fix, ". ") {
				assert.LessOrEqual(t, len(strings.Fields(sentence)), 25, "%s: %s", e.Code, sentence)
			}
			names[e.Name], last = true, e.Code
		}
	}
}

func TestFind_CodeOrName(t *testing.T) {
	for text, want := range map[string][]string{
		"PO-3001": {"PO-3001"}, "po-3001": {"PO-3001"}, "3001": {"PO-3001"}, "po3001": {"PO-3001"},
		"policy_denied": {"PO-3001"}, "POLICY_DENIED": {"PO-3001"}, "imagenotfound": {"PO-2001"},
		"conflict": {"PO-1007"}, "Conflict": {"PO-2016"}, "CONFLICT": {"PO-1007", "PO-2016"},
		"PO-3999": nil, "no_such": nil, "": nil, "PO-300": nil,
	} {
		var codes []string
		for _, e := range catalog.Find(text) {
			codes = append(codes, e.Code)
		}
		assert.Equal(t, want, codes, text)
	}
}

func TestNear(t *testing.T) {
	for text, want := range map[string]string{"PO-3000": "PO-3001", "po-3999": "PO-3007", "4000": "PO-4001", "PO-1100": "PO-1101"} {
		near, found := catalog.Near(text)
		assert.True(t, found, text)
		assert.Equal(t, want, near.Code, text)
	}
	for _, text := range []string{"PO-7001", "policy", ""} {
		_, found := catalog.Near(text)
		assert.False(t, found, text)
	}
}

// Codes, reasons and causes are read from the sources, and codes from the installer. No entry is
// without an error.
func TestCatalog_HasEveryError(t *testing.T) {
	used := goNames(t)
	require.Greater(t, len(used), 100)
	for name, where := range used {
		_, found := catalog.Named(name)
		assert.True(t, found, "internal/problem/catalog has no entry for %s of %s", name, where)
	}
	installer := installerCodes(t)
	for code, where := range installer {
		assert.Len(t, catalog.Find(code), 1, "internal/problem/catalog has no entry for %s of %s", code, where)
	}
	for _, e := range catalog.All() {
		_, named := used[e.Name]
		_, printed := installer[e.Code]
		assert.True(t, named || printed, "nothing has the error %s %s", e.Code, e.Name)
		assert.Equal(t, strings.HasPrefix(e.Code, "PO-9"), !named, "%s %s: PO-9 is for the installer alone", e.Code, e.Name)
	}
}

// goNames are the names of errors, each with a file that has it.
func goNames(t *testing.T) map[string]string {
	t.Helper()
	names := map[string]string{}
	for _, dir := range []string{"agent", "cmd", "internal", "runnerapi", "tunnel"} {
		err := filepath.WalkDir("../../../"+dir, func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "/runnertest/") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			ast.Inspect(file, func(n ast.Node) bool {
				for _, name := range namesIn(n, strings.Contains(path, "internal/build/")) {
					names[name] = path
				}
				return true
			})
			return nil
		})
		require.NoError(t, err)
	}
	return names
}

// nameTypes are the types of errors' names, by their last word.
var nameTypes = []string{"Code", "Cause", "Reason"}

func namesIn(n ast.Node, ofBuild bool) []string {
	switch n := n.(type) {
	case *ast.ValueSpec:
		return constantNames(n)
	case *ast.CallExpr: // problem.New(status, "name", …), and the steps' fail("name", …)
		if lastWord(n.Fun) == "New" && len(n.Args) > 3 {
			return texts(n.Args[1])
		}
		if ofBuild && lastWord(n.Fun) == "fail" {
			return texts(n.Args[0])
		}
	case *ast.AssignStmt: // f.Cause, f.Message, f.Fix = "name", …
		if ofBuild && lastWord(n.Lhs[0]) == "Cause" {
			return causesOfStage(n.Rhs[0])
		}
	case *ast.CompositeLit: // {[]string{"what BuildKit says"}, "name", "fix"}
		if ofBuild && n.Type == nil && len(n.Elts) == 3 {
			return texts(n.Elts[1])
		}
	case *ast.KeyValueExpr:
		if name, ok := n.Key.(*ast.Ident); ok && name.Name == "Cause" {
			return texts(n.Value)
		}
	}
	return nil
}

// constantNames are of `X Code = "x"`, `CodeX = "x"`, and `X = Code("x")`.
func constantNames(n *ast.ValueSpec) (names []string) {
	typed := slices.Contains(nameTypes, lastWord(n.Type))
	for i, value := range n.Values {
		call, converted := value.(*ast.CallExpr)
		switch {
		case converted && slices.Contains(nameTypes, lastWord(call.Fun)):
			names = append(names, texts(call.Args[0])...)
		case typed, strings.HasPrefix(n.Names[i].Name, "Code"):
			names = append(names, texts(value)...)
		}
	}
	return names
}

// causesOfStage are `"name"`, and `stage + "_failed"` for each step of a build.
func causesOfStage(of ast.Expr) (names []string) {
	sum, isSum := of.(*ast.BinaryExpr)
	if !isSum {
		return texts(of)
	}
	for _, stage := range []string{"fetch", "build", "push"} {
		for _, end := range texts(sum.Y) {
			names = append(names, stage+end)
		}
	}
	return names
}

func lastWord(of ast.Expr) string {
	switch of := of.(type) {
	case *ast.Ident:
		return of.Name
	case *ast.SelectorExpr:
		return of.Sel.Name
	}
	return ""
}

func texts(of ast.Expr) []string {
	literal, ok := of.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return nil
	}
	text, err := strconv.Unquote(literal.Value)
	if err != nil || text == "" {
		return nil
	}
	return []string{text}
}

var (
	codeInScript = regexp.MustCompile(`\bPO-[0-9]+\b`)
	ended        = regexp.MustCompile(`(?m)^[^#\n]*\b(?:fail|obstacle) "\$(?:EXIT_\w+|exit)" .*$|^ *error_say .*$|^[^#\n]*\bStop-Install \$Exit\w+ .*$`)
	withCode     = regexp.MustCompile(`"\$(?:EXIT_\w+|exit)" (?:PO-[0-9]{4}|"\$number"|"\$code") "|error_say PO-[0-9]{4} "|Stop-Install \$Exit\w+ 'PO-[0-9]{4}' `)
)

// installerCodes are the codes in the installer's parts, each with a file that has it. Each call
// that ends the installer has one.
func installerCodes(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("../../../scripts/install/*")
	require.NoError(t, err)
	codes, calls := map[string]string{}, 0
	for _, file := range files {
		if ext := filepath.Ext(file); ext != ".sh" && ext != ".ps1" {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, call := range ended.FindAllString(string(text), -1) {
			calls++
			assert.Regexp(t, withCode, call, "%s: an error without a code", file)
		}
		for _, code := range codeInScript.FindAllString(string(text), -1) {
			codes[code] = file
		}
	}
	require.Greater(t, calls, 60)
	return codes
}
