package docs_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	fenced     = regexp.MustCompile("(?s)```.*?```")
	linked     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	titled     = regexp.MustCompile(`(?m)^#+ (.*)$`)
	notInSlugs = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// slug is a heading's anchor, as GitHub makes it.
func slug(heading string) string {
	heading = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(strings.TrimSpace(heading), "$1")
	return strings.ReplaceAll(notInSlugs.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")
}

// hasAnchor says whether a page has a heading of this anchor.
func hasAnchor(page, anchor string) bool {
	return slices.ContainsFunc(titled.FindAllStringSubmatch(page, -1), func(h []string) bool { return slug(h[1]) == anchor })
}

// pages are all Markdown files of the repository, without code in fences.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	require.NoError(t, filepath.WalkDir("..", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != ".." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "testdata" || entry.Name() == "dist" || entry.Name() == "bin"):
			return filepath.SkipDir
		case filepath.Ext(file) == ".md":
			found[file] = fenced.ReplaceAllString(read(t, file), "")
		}
		return nil
	}))
	require.Greater(t, len(found), 60)
	return found
}

func TestPages_LinksResolve(t *testing.T) {
	all := pages(t)
	for page, text := range all {
		for _, link := range linked.FindAllStringSubmatch(text, -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			file, anchor, _ := strings.Cut(link[1], "#")
			to := page
			if file != "" {
				to = filepath.Join(filepath.Dir(page), file)
			}
			_, err := os.Stat(to)
			assert.NoError(t, err, "%s links to %s", page, link[1])
			if target, isPage := all[to]; anchor != "" && isPage {
				assert.True(t, hasAnchor(target, anchor), "%s links to %s, which has no such heading", page, link[1])
			}
		}
	}
}

// TestPages_Indexed keeps pages from being found by chance alone.
func TestPages_Indexed(t *testing.T) {
	index, decisions := read(t, "README.md"), read(t, "adr/README.md")
	for page := range pages(t) {
		name, inDocs := strings.CutPrefix(filepath.ToSlash(page), "../docs/")
		decision, isDecision := strings.CutPrefix(name, "adr/")
		switch {
		case !inDocs || name == "README.md" || name == "adr/README.md":
		case isDecision:
			assert.True(t, strings.Contains(decisions, "("+decision+")"), "docs/adr/README.md has no line for %s", decision)
		default:
			assert.True(t, strings.Contains(index, "("+name+")"), "docs/README.md has no line for %s", name)
		}
	}
}

// TestPages_LineLength leaves out code, tables, and lines with a URL.
func TestPages_LineLength(t *testing.T) {
	for page, text := range pages(t) {
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			if utf8.RuneCountInString(line) > 100 && !strings.Contains(line, "://") {
				assert.True(t, strings.HasPrefix(strings.TrimSpace(line), "|"), "%s: wrap at 100 columns: %s", page, line)
			}
		}
	}
}

// named is a page's path in code, manifests, scripts and help texts.
var named = regexp.MustCompile(`(?:^|[^\w/.-])(?:\.\./)*(docs/[a-z0-9/_-]+\.(?:md|json))(?:#([a-z0-9_-]+))?`)

// TestPages_NamedInCodeExist finds paths of pages outside of links: in comments, help texts and
// errors.
func TestPages_NamedInCodeExist(t *testing.T) {
	all := pages(t)
	found := 0
	for _, root := range []string{"agent", "cmd", "deployments", "internal", "runnerapi", "scripts", "test", "tunnel", "Makefile", ".golangci.yaml"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("..", root), func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || strings.Contains(file, "/bench/figures/") {
				return err
			}
			text := strings.ReplaceAll(read(t, file), "/blob/main/docs/", " docs/")
			for _, m := range named.FindAllStringSubmatch(text, -1) {
				found++
				to := filepath.Join("..", m[1])
				_, err := os.Stat(to)
				assert.NoError(t, err, "%s names %s", file, m[1])
				if page, isPage := all[to]; m[2] != "" && isPage {
					assert.True(t, hasAnchor(page, m[2]), "%s names %s, which has no heading #%s", file, m[1], m[2])
				}
			}
			return nil
		}))
	}
	require.Greater(t, found, 100)
}

// TestArchitecturePage_HasAllFolders looks each Go package up in architecture.md, or a folder it is
// in.
func TestArchitecturePage_HasAllFolders(t *testing.T) {
	doc := read(t, "contributing/architecture.md")
	for _, root := range []string{"agent", "cmd", "deployments", "internal", "runnerapi", "scripts", "test", "tunnel"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("..", root), func(file string, _ fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(file) != ".go" || strings.Contains(file, "/testdata/") {
				return err
			}
			dir := filepath.ToSlash(strings.TrimPrefix(filepath.Dir(file), ".."+string(filepath.Separator)))
			assert.True(t, described(doc, dir), "%s is not in docs/contributing/architecture.md", dir)
			return nil
		}))
	}
}

// described says whether the table has a folder, or one that it is in.
func described(doc, dir string) bool {
	for ; dir != "."; dir = path.Dir(dir) {
		if strings.Contains(doc, "`"+dir+"/`") || strings.Contains(dir, "/") && strings.Contains(doc, "`"+dir+"`") {
			return true
		}
	}
	return false
}
