package site_test

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
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

	"github.com/pipeops/pipeops-vm-agent/test/browser"
	"github.com/pipeops/pipeops-vm-agent/test/inputs"
	"github.com/pipeops/pipeops-vm-agent/test/suite"
)

// element is an element of a page with its attributes.
type element struct {
	name string
	attr map[string]string
}

// build makes the site, and returns its folder.
func build(t *testing.T) string {
	t.Helper()
	suite.Release(t, "the site of the documentation")
	require.NoError(t, inputs.Depend("docs", "internal/tools/hugo"))
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "tool", "-modfile=internal/tools/hugo/go.mod", "hugo",
		"--source", "docs/site", "--destination", dir, "--panicOnWarning")
	cmd.Dir = inputs.Root()
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return dir
}

// TestSite_Pages follows each link of each page, and looks for what every page has.
func TestSite_Pages(t *testing.T) {
	dir := build(t)
	pages := parse(t, dir)
	require.NotEmpty(t, pages["index.html"])
	for _, written := range markdown(t) {
		assert.Contains(t, pages, written)
	}
	searched := index(t, dir)
	for name, elements := range pages {
		assert.NotEmpty(t, searched[name], "the search has a title of %s", name)
		complete(t, name, elements)
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

// complete fails the test if a page lacks a title, its contents, or a way to the previous and the
// next page. Lists of a folder are beside that way.
func complete(t *testing.T, name string, elements []element) {
	t.Helper()
	count := map[string]int{}
	for _, e := range elements {
		count[e.name]++
		count[e.name+"."+e.attr["class"]]++
		count[e.name+"."+e.attr["rel"]]++
	}
	assert.Equal(t, 1, count["h1"], "%s: a heading is the page's title", name)
	if count["h2"] > 0 {
		assert.Equal(t, 1, count["details.contents"], "%s: the contents", name)
	}
	if path.Base(name) != "index.html" {
		assert.Equal(t, 1, count["nav.neighbours"], "%s: the way to its neighbours", name)
		assert.Positive(t, count["a.prev"], "%s: the previous page", name)
		if !last(name) {
			assert.Equal(t, 1, count["a.next"], "%s: the next page", name)
		}
	}
}

// last reports whether no page comes after this one: the last decision, and the last page of the
// navigation.
func last(name string) bool {
	decisions, err := filepath.Glob(filepath.Join(inputs.Root(), "docs/adr/0*.md"))
	return err == nil && (name == "troubleshooting.html" || name == "adr/"+strings.TrimSuffix(filepath.Base(decisions[len(decisions)-1]), ".md")+".html")
}

// index returns the titles in the index of the search, by page.
func index(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "search.*.js"))
	require.NoError(t, err)
	require.Len(t, files, 1)
	text, err := os.ReadFile(files[0])
	require.NoError(t, err)
	list, found := strings.CutPrefix(string(text), "const pages = ")
	require.True(t, found)
	var entries []struct{ ID, Title, Text string }
	require.NoError(t, json.Unmarshal([]byte(list), &entries))
	titles := map[string]string{}
	for _, e := range entries {
		titles[e.ID] = e.Title
	}
	return titles
}

// TestSite_InBrowser looks at the site as a server has it, and searches in its files without one.
func TestSite_InBrowser(t *testing.T) {
	dir := build(t)
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	b := browser.Open(t)
	for screen, size := range browser.Screens {
		b.Resize(size[0], size[1])
		for _, dark := range []bool{false, true} {
			b.Dark(dark)
			b.Visit(server.URL+"/concepts/how-it-works.html", "figure svg") // its diagrams are drawn
			b.StaysAt(server.URL)
			b.Fits("how it works, " + screen)
			b.Accessible("how it works, " + screen)
			b.Picture(fmt.Sprintf("site-%s-dark-%t", screen, dark))
		}
		search(b)
		b.Accessible("the search, " + screen)
		b.Picture("site-search-" + screen)
	}

	b.Resize(browser.Screens["phone"][0], browser.Screens["phone"][1])
	b.Visit("file://"+filepath.Join(dir, "faq.html"), "main")
	search(b)
	b.Follow("#found a")
	b.Click("button.menu")
	b.Await("#menu a[aria-current=page]")
	b.Click("button.menu")
	b.Click("button.copy")
	b.Await(`//button[text()="Copied"]`)
	b.StaysAt("file://" + dir)
}

// search looks for a page that its index has.
func search(b *browser.Browser) {
	b.Fill("input[type=search]", "rotate ca")
	b.Await("#found a[href$='operator/certificates.html']")
}

// TestSite_ScriptsPinned compares the scripts of others with the list that fetch.sh wrote.
func TestSite_ScriptsPinned(t *testing.T) {
	dir := filepath.Join(inputs.Root(), "docs/site/assets/vendor")
	list, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	require.NoError(t, err)
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(dir, f.Name()))
		require.NoError(t, err)
		if f.Name() != "SHA256SUMS" {
			assert.Contains(t, string(list), fmt.Sprintf("%x  %s\n", sha256.Sum256(text), f.Name()))
		}
	}
	assert.Equal(t, len(files), strings.Count(string(list), "\n"), "a line for each file, after one of its own")
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
