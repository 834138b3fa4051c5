package site_test

import (
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/html"

	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// element is an element of a page with its attributes.
type element struct {
	name string
	attr map[string]string
}

// TestSite makes the site, and follows each link of each page.
func TestSite(t *testing.T) {
	suite.Release(t, "the site of the documentation")
	require.NoError(t, inputs.Depend("docs", "internal/tools/hugo"))
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "tool", "-modfile=internal/tools/hugo/go.mod", "hugo",
		"--source", "docs/site", "--destination", dir, "--panicOnWarning")
	cmd.Dir = inputs.Root()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))

	pages := parse(t, dir)
	require.NotEmpty(t, pages["index.html"])
	for _, written := range markdown(t) {
		assert.Contains(t, pages, written)
	}
	for name, elements := range pages {
		for _, e := range elements {
			switch e.name {
			case "a":
				follow(t, pages, dir, name, e.attr["href"])
			case "img", "link", "script":
				from := e.attr["src"] + e.attr["href"]
				assert.NotContains(t, from, "//", "%s: a page loads nothing from another host", name)
				follow(t, pages, dir, name, from)
			}
		}
	}
}

// parse returns the elements of all pages of a site.
func parse(t *testing.T, dir string) map[string][]element {
	t.Helper()
	pages := map[string][]element{}
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(name) != ".html" {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		document, err := html.Parse(strings.NewReader(string(text)))
		if err != nil {
			return err
		}
		for n := range document.Descendants() {
			if n.Type != html.ElementNode {
				continue
			}
			e := element{n.Data, map[string]string{}}
			for _, a := range n.Attr {
				e.attr[a.Key] = a.Val
			}
			pages[name] = append(pages[name], e)
		}
		return nil
	}))
	return pages
}

// markdown returns the names that the documents have in the site.
func markdown(t *testing.T) (names []string) {
	t.Helper()
	docs := filepath.Join(inputs.Root(), "docs")
	require.NoError(t, fs.WalkDir(os.DirFS(docs), ".", func(name string, _ fs.DirEntry, err error) error {
		if base, is := strings.CutSuffix(name, ".md"); is && path.Base(base) != "README" {
			names = append(names, base+".html")
		}
		return err
	}))
	require.Greater(t, len(names), 50)
	return names
}

// follow fails the test for a link within the site that leads nowhere.
func follow(t *testing.T, pages map[string][]element, dir, from, link string) {
	t.Helper()
	u, err := url.Parse(link)
	require.NoError(t, err, "%s: %s", from, link)
	if u.Host != "" || link == "" {
		assert.Equal(t, "https", u.Scheme, "%s links to %q", from, link)
		return
	}
	to := from
	if u.Path != "" {
		to = path.Join(path.Dir(from), u.Path)
	}
	if !assert.FileExists(t, filepath.Join(dir, to), "%s links to %s", from, link) || u.Fragment == "" {
		return
	}
	for _, e := range pages[to] {
		if e.attr["id"] == u.Fragment {
			return
		}
	}
	assert.Fail(t, "an anchor is missing", "%s links to %s", from, link)
}
