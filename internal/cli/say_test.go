package cli_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/pipeops/pipeops-vm-agent/internal/cli"
	"github.com/pipeops/pipeops-vm-agent/internal/printable"
)

const hostile = "a\x1b[2K\u009b2K\u202e\u200b\u2028b\U000e0041\x7f\n"

func TestSay_EscapesControlCharacters(t *testing.T) {
	value := map[string]any{"name": hostile, hostile: []string{hostile, "plain: \"text\""}, "n": 7}
	for _, format := range append(cli.Formats, "jsonpath={.name}") {
		out := cli.Output{Format: format}
		var text bytes.Buffer
		require.NoError(t, out.Write(&text, value, func(w io.Writer) { cli.Row(w, hostile); cli.Say(w, "%s", hostile) }))
		assert.False(t, strings.ContainsFunc(strings.ReplaceAll(text.String(), "\n", ""), printable.Hidden), "%s: %q", format, text.String())
		var back map[string]any
		switch format {
		case "json":
			require.NoError(t, json.Unmarshal(text.Bytes(), &back))
		case "yaml":
			require.NoError(t, yaml.Unmarshal(text.Bytes(), &back), text.String())
		default:
			continue
		}
		assert.Equal(t, map[string]any{"name": hostile, hostile: []any{hostile, "plain: \"text\""}, "n": float64(7)}, back, "what it says stays")
	}
	var said bytes.Buffer
	cli.Say(&said, "\nError: %s\n  fix: none", "b\x1b[2K\u202e")
	cli.Progress(&said, "%s", "c\x1b[2Jd\n")
	assert.Equal(t, "\nError: b [2K\uFFFD\n  fix: none\n\r\x1b[Kc [2Jd ", said.String())
	said.Reset()
	require.NoError(t, cli.JSONLine(&said, map[string]string{"a": "\u202e"}))
	assert.Equal(t, "{\"a\":\"\\u202e\"}\n", said.String())
}

// TestPrintingBypass, which filters: no command writes to a terminal itself.
func TestPrintingBypass(t *testing.T) {
	files, err := filepath.Glob("../../cmd/*/*.go")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, 0)
		require.NoError(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && printsItself(call) {
				t.Errorf("%s: print with cli.Say, cli.Print, cli.JSONLine or cli.Raw", set.Position(call.Pos()))
			}
			return true
		})
	}
}

func printsItself(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	on, name := "", f.Sel.Name
	switch x := f.X.(type) {
	case *ast.Ident:
		on = x.Name
	case *ast.SelectorExpr:
		on = "." + x.Sel.Name
	}
	switch {
	case on == "fmt" && strings.HasPrefix(name, "Print"), on == "cmd" && strings.HasPrefix(name, "Print"):
		return true
	case on == "fmt" && strings.HasPrefix(name, "Fprint"), on == "io" && name == "WriteString":
		builder, buffer := call.Args[0].(*ast.UnaryExpr)
		return !buffer || builder.Op != token.AND // a text in memory
	case on == "json" && name == "NewEncoder":
		to, stream := call.Args[0].(*ast.SelectorExpr)
		return stream && (to.Sel.Name == "out" || to.Sel.Name == "err")
	}
	return (on == ".out" || on == ".err") && (name == "Write" && len(call.Args) == 1 || name == "WriteString")
}
